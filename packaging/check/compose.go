package main

import (
	"context"
	"slices"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

// compose loads files as `docker compose --file` does: schema, anchors, overrides, references between services and secrets.
func compose(files []string) ([]container, error) {
	options, err := cli.NewProjectOptions(files, cli.WithOsEnv)
	if err != nil {
		return nil, err
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		return nil, err
	}
	var found []container
	// Services follow those that they depend on.
	err = project.ForEachService(project.ServiceNames(), func(_ string, service *types.ServiceConfig) error {
		if !slices.ContainsFunc(found, func(c container) bool { return c.Name == service.Name }) {
			one := container{Name: service.Name, Args: service.Command, Environment: map[string]string{}}
			for name, value := range service.Environment {
				if value != nil {
					one.Environment[name] = *value
				}
			}
			if service.HealthCheck != nil && len(service.HealthCheck.Test) > 2 {
				// Behind CMD and the program.
				one.Health = service.HealthCheck.Test[2:]
			}
			found = append(found, one)
		}
		return nil
	})
	return found, err
}
