package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/bench/internal/celcalls"
)

// functionsOf lists the CEL functions of the newest release that a new policy may call on a server. It tries each
// function in a dry run.
func functionsOf(ctx context.Context, client rest.Interface) (map[string]bool, error) {
	found := map[string]bool{}
	for name, expression := range celcalls.Expressions() {
		body, err := json.Marshal(celcalls.Policy("functions", expression))
		if err != nil {
			return nil, err
		}
		var code int
		result := client.Post().AbsPath("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies").Param("dryRun", "All").
			SetHeader("Content-Type", "application/json").Body(body).Do(ctx).StatusCode(&code)
		switch code {
		case http.StatusCreated:
			found[name] = true
		case http.StatusUnprocessableEntity:
		default:
			return nil, fmt.Errorf("%s: %d: %w", expression, code, result.Error())
		}
	}
	return found, nil
}
