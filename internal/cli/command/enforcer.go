package command

import (
	"github.com/spf13/pflag"

	"github.com/gatehouse-dev/gatehouse/internal/predict/clustersnapshot"
)

// The servers that may enforce registrations.
const (
	forGatehouse  = "gatehouse"
	ForKubernetes = "kubernetes"
)

// Enforcer is the server that enforces the registrations by which a command judges. A kube-apiserver
// ignores the annotations of Gatehouse (S28.11).
type Enforcer struct {
	// Wanted is --for; empty if the command line does not say it.
	Wanted string
}

// AddFlag adds --for. otherwise says which server is meant without the flag.
func (e *Enforcer) AddFlag(f *pflag.FlagSet, otherwise string) {
	Choose(f, &e.Wanted, "for", "", "", "`server` that enforces the registrations: gatehouse, or kubernetes, which ignores the annotations of Gatehouse (default "+otherwise+")", forGatehouse, ForKubernetes)
}

// Complete returns an error about a value of --for that did not come through the parser.
func (e *Enforcer) Complete() error {
	if e.Wanted == "" {
		return nil
	}
	return OneOf("for", e.Wanted, forGatehouse, ForKubernetes)
}

// Gatehouse reports whether the server is Gatehouse. s is a snapshot of its cluster; nil for files
// alone, which are taken for those of a kube-apiserver unless the flag says otherwise.
func (e *Enforcer) Gatehouse(s *clustersnapshot.Cluster) bool {
	if e.Wanted != "" {
		return e.Wanted == forGatehouse
	}
	return s != nil && s.Gatehouse()
}
