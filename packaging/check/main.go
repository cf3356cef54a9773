// Command check reads what packaging/ has for containers and dashboards with the libraries of those that read it: Compose, Helm,
// Kubernetes and Grafana. `cargo xtask package --check` runs it, and starts what it prints.
//
//	check compose FILE...        a Compose project; prints its containers
//	check chart FOLDER [VALUES]  a Helm chart, with its own values and those of ci/; prints the containers of the former, or of
//	                             a file of the latter
//	check dashboard FILE         a dashboard of Grafana; prints its queries
//
// What is wrong is one line on standard error, and exit status 1.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

// A container is what is started, in an order in which it can be.
type container struct {
	Name string   `json:"name"`
	Args []string `json:"args"`
	// Its variables.
	Environment map[string]string `json:"environment,omitempty"`
	// The command of its health check, if it has one.
	Health []string `json:"health,omitempty"`
}

func main() {
	found, err := run(os.Args[1:])
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(found)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(arguments []string) (any, error) {
	if len(arguments) >= 2 {
		switch arguments[0] {
		case "compose":
			return compose(arguments[1:])
		case "chart":
			return chart(arguments[1], arguments[2:]...)
		case "dashboard":
			return dashboard(arguments[1])
		}
	}
	return nil, errors.New("check compose FILE..., check chart FOLDER [VALUES] or check dashboard FILE")
}
