package offline_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/test/harness"
)

var update = flag.Bool("update", false, "rewrite kinds.txt from a server's discovery")

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// The table of built-in kinds equals a server's discovery.
func TestKindsAreThoseOfAServer(t *testing.T) {
	s := harness.Start(t)
	lists, err := offline.Resources(discovery.NewDiscoveryClientForConfigOrDie(s.Admin))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, l := range lists {
		fmt.Fprintln(&b, l.GroupVersion)
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range l.APIResources {
			scope := "cluster"
			if r.Namespaced {
				scope = "namespaced"
			}
			fmt.Fprintf(&b, "  %s %s %s", r.Name, r.Kind, scope)
			if of := (schema.GroupVersion{Group: r.Group, Version: r.Version}); r.Version != "" && of != gv {
				fmt.Fprintf(&b, " %s", of)
			}
			fmt.Fprintln(&b)
		}
	}
	if *update {
		if err := os.WriteFile("kinds.txt", []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	have, err := os.ReadFile("kinds.txt")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b.String(), string(have)); diff != "" {
		t.Errorf("kinds.txt (-discovered +have), to be rewritten with -update:\n%s", diff)
	}
}

func TestKindsAreFound(t *testing.T) {
	k := offline.Builtin()
	for _, c := range []struct{ name, resource, err string }{
		{name: "deployment", resource: "apps/v1, Resource=deployments"},
		{name: "Deployments", resource: "apps/v1, Resource=deployments"},
		{name: "horizontalpodautoscalers.v1.autoscaling", resource: "autoscaling/v1, Resource=horizontalpodautoscalers"},
		{name: "deployments.extensions", err: `the kind "deployments.extensions" is not known`},
		{name: "pods.v1.", resource: "/v1, Resource=pods"},
		{name: "gadgets", err: `the kind "gadgets" is not known`},
		{name: "pods.apps", err: `the kind "pods.apps" is not known`},
	} {
		got, err := k.Named(c.name)
		switch {
		case c.err != "":
			if err == nil || err.Error() != c.err {
				t.Errorf("%s: error %v, want %s", c.name, err, c.err)
			}
		case err != nil:
			t.Errorf("%s: %v", c.name, err)
		case got.Resource.String() != c.resource:
			t.Errorf("%s: %s, want %s", c.name, got.Resource, c.resource)
		}
	}
	eviction := schema.GroupVersionKind{Group: "policy", Version: "v1", Kind: "Eviction"}
	if got, err := k.Parent("eviction", eviction); err != nil || got.Resource.Resource != "pods" {
		t.Errorf("the parent of evictions: %v, %v", got, err)
	}
	scale := schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}
	if got, err := k.Parent("scale", scale); err == nil || !strings.Contains(err.Error(), "several kinds") {
		t.Errorf("the parent of scales: %v, %v", got, err)
	}
	if got := k.Of(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Policy"}); !got.Guessed || got.Resource.Resource != "policies" {
		t.Errorf("an unknown kind: %+v", got)
	}
}

// A misspelled kind is named, if its group is known.
func TestTheMeantKind(t *testing.T) {
	kinds := offline.Builtin()
	for given, want := range map[string]string{
		"v1 secret":                      " (did you mean Secret?)",
		"v1 SECRET":                      " (did you mean Secret?)",
		"v1 configmaps":                  " (did you mean ConfigMap?)",
		"apps/v1 Deploymnt":              " (did you mean Deployment?)",
		"v1 deployment":                  " (did you mean Deployment of apps/v1?)",
		"apps/v1 pod":                    " (did you mean Pod of v1?)",
		"batch/v1beta1 cronjob":          " (did you mean CronJob of batch/v1?)",
		"serving.knative.dev/v1 service": "",
		"v1 Website":                     "",
	} {
		version, kind, _ := strings.Cut(given, " ")
		if got := kinds.Meant(schema.FromAPIVersionAndKind(version, kind)); got != want {
			t.Errorf("%s: %q, want %q", given, got, want)
		}
	}
}
