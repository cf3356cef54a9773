package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

// chart does what `helm lint --strict` and `helm template` do, and decodes each document as an API server does that refuses
// fields which it does not know.
func chart(folder string, printed ...string) ([]container, error) {
	if err := monitoring.AddToScheme(scheme.Scheme); err != nil {
		return nil, err
	}
	others, err := filepath.Glob(filepath.Join(folder, "ci", "*-values.yaml"))
	if err != nil {
		return nil, err
	}
	wanted := ""
	if len(printed) > 0 {
		wanted = filepath.Join(folder, printed[0])
	}
	var own []container
	for _, file := range append([]string{""}, others...) {
		values := chartutil.Values{}
		if file != "" {
			if values, err = chartutil.ReadValuesFile(file); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
		}
		found, err := render(folder, values)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(folder, file), err)
		}
		if file == wanted {
			own = found
		}
	}
	if own == nil {
		return nil, fmt.Errorf("there is no file %s", wanted)
	}
	// A misspelt value is refused.
	if _, err := render(folder, chartutil.Values{"gatewy": map[string]any{}}); err == nil {
		return nil, errors.New("values.schema.json lets a value pass that there is not")
	}
	return own, nil
}

func render(folder string, values chartutil.Values) ([]container, error) {
	for _, message := range lint.All(folder, values, "default", true).Messages {
		if message.Severity >= support.WarningSev {
			return nil, message
		}
	}
	loaded, err := loader.Load(folder)
	if err != nil {
		return nil, err
	}
	release := chartutil.ReleaseOptions{Name: "farside", Namespace: "default", IsInstall: true}
	all, err := chartutil.ToRenderValues(loaded, values, release, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(loaded, all)
	if err != nil {
		return nil, err
	}
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	var found []container
	for name, text := range files {
		if strings.HasSuffix(name, ".txt") {
			continue
		}
		documents := yaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
		for {
			document, err := documents.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if len(bytes.TrimSpace(document)) == 0 {
				continue
			}
			object, _, err := decoder.Decode(document, nil, nil)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			found = append(found, containers(object)...)
		}
	}
	// Nodes, gateways, the test: by what they do, since each needs the ones before.
	order := []string{"node", "gateway", "top"}
	slices.SortFunc(found, func(a, b container) int {
		return slices.Index(order, a.Name) - slices.Index(order, b.Name)
	})
	return found, nil
}

// containers are those that an object makes Kubernetes start.
func containers(object runtime.Object) []container {
	var pod core.PodSpec
	switch object := object.(type) {
	case *apps.StatefulSet:
		pod = object.Spec.Template.Spec
	case *apps.Deployment:
		pod = object.Spec.Template.Spec
	case *core.Pod:
		pod = object.Spec
	}
	var found []container
	for _, one := range pod.Containers {
		found = append(found, container{Name: one.Name, Args: one.Args})
	}
	return found
}
