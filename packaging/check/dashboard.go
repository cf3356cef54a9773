package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	grafana "github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// dashboard decodes a dashboard by Grafana's own schema, which refuses fields that it does not know.
func dashboard(file string) ([]string, error) {
	runtime := cog.NewRuntime()
	runtime.RegisterDataqueryVariant(prometheus.VariantConfig())
	runtime.RegisterPanelcfgVariant(timeseries.VariantConfig())
	runtime.RegisterPanelcfgVariant(stat.VariantConfig())
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	// The strict decoder finds what is wrong, and keeps little of what is right; a list of no errors is its nil.
	var strict, board grafana.Dashboard
	for _, err := range []error{strict.UnmarshalJSONStrict(text), json.Unmarshal(text, &board), board.Validate()} {
		if err != nil && err.Error() != "" {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	var queries []string
	ids := map[uint32]bool{}
	for _, one := range board.Panels {
		if one.Panel == nil {
			continue
		}
		if one.Panel.Id == nil || ids[*one.Panel.Id] {
			return nil, fmt.Errorf("%s: panel `%s` has no number of its own", file, *one.Panel.Title)
		}
		ids[*one.Panel.Id] = true
		for _, target := range one.Panel.Targets {
			query, is := target.(*prometheus.Dataquery)
			if !is {
				return nil, fmt.Errorf("%s: panel `%s` asks something else than Prometheus", file, *one.Panel.Title)
			}
			queries = append(queries, query.Expr)
		}
	}
	return queries, nil
}
