package command

import (
	"github.com/spf13/pflag"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/clustersnapshot"
)

// The servers that may enforce webhook configurations and policies.
const (
	forGatehouse  = "gatehouse"
	ForKubernetes = "kubernetes"
)

// Enforcer is the server that enforces the webhook configurations, policies and initializers that a command
// evaluates. A kube-apiserver ignores the annotations of Gatehouse (S28.11).
type Enforcer struct {
	// Wanted is the value of --for; empty if the flag is not set.
	Wanted string
}

// AddFlag adds --for. otherwise describes the default.
func (e *Enforcer) AddFlag(f *pflag.FlagSet, otherwise string) {
	Choose(f, &e.Wanted, "for", "", "", "`server` that enforces the webhooks and policies: gatehouse, or kubernetes, which ignores the annotations of Gatehouse (default "+otherwise+")", forGatehouse, ForKubernetes)
}

// Complete validates a value of --for from the configuration file, which the flag parser has not checked.
func (e *Enforcer) Complete() error {
	if e.Wanted == "" {
		return nil
	}
	return OneOf("for", e.Wanted, forGatehouse, ForKubernetes)
}

// Gatehouse reports whether the server is Gatehouse. s is a snapshot of its cluster; nil means files only,
// whose server is a kube-apiserver unless the flag is set.
func (e *Enforcer) Gatehouse(s *clustersnapshot.Cluster) bool {
	if e.Wanted != "" {
		return e.Wanted == forGatehouse
	}
	return s != nil && s.Gatehouse()
}
