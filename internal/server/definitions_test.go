package server

import (
	"strings"
	"testing"

	"k8s.io/kube-openapi/pkg/validation/spec"
)

// kubectl explain has a text for each field of Gatehouse's own kinds: the comment in the source.
func TestEveryFieldOfOwnKindsIsDescribed(t *testing.T) {
	described := 0
	for name, d := range ownDefinitions(func(path string) spec.Ref { return spec.MustCreateRef("#/definitions/" + path) }) {
		if !strings.HasPrefix(name, "github.com/gatehouse-dev/") {
			continue
		}
		described++
		if d.Schema.Description == "" {
			t.Errorf("%s has no comment", name)
		}
		for field, s := range d.Schema.Properties {
			if s.Description == "" {
				t.Errorf("%s of %s has no comment", field, name)
			}
		}
	}
	if described < 40 {
		t.Errorf("%d types are described", described)
	}
}
