package cli

import (
	"github.com/spf13/pflag"

	"github.com/gatehouse-dev/gatehouse/internal/predict/clustersnapshot"
)

// The servers that may enforce registrations.
const (
	forGatehouse  = "gatehouse"
	forKubernetes = "kubernetes"
)

// enforcer is the server that enforces the registrations by which a command judges. A kube-apiserver
// ignores the annotations of Gatehouse (S28.11).
type enforcer struct {
	// wanted is --for; empty if the command line does not say it.
	wanted string
}

// addFlag adds --for. otherwise says which server is meant without the flag.
func (e *enforcer) addFlag(f *pflag.FlagSet, otherwise string) {
	choose(f, &e.wanted, "for", "", "", "`server` that enforces the registrations: gatehouse, or kubernetes, which ignores the annotations of Gatehouse (default "+otherwise+")", forGatehouse, forKubernetes)
}

func (e *enforcer) complete() error {
	if e.wanted == "" {
		return nil
	}
	return oneOf("for", e.wanted, forGatehouse, forKubernetes)
}

// gatehouse reports whether the server is Gatehouse. s is a snapshot of its cluster; nil for files
// alone, which are taken for those of a kube-apiserver unless the flag says otherwise.
func (e *enforcer) gatehouse(s *clustersnapshot.Snapshot) bool {
	if e.wanted != "" {
		return e.wanted == forGatehouse
	}
	return s != nil && s.Gatehouse()
}
