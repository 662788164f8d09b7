package plan

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

var update = flag.Bool("update", false, "rewrite the plans in testdata")

// request is request.yaml.
type request struct {
	Operation   string         `json:"operation"`
	APIVersion  string         `json:"apiVersion"`
	Resource    string         `json:"resource"`
	Subresource string         `json:"subresource"`
	Kind        string         `json:"kind"`
	Namespace   string         `json:"namespace"`
	Name        string         `json:"name"`
	User        string         `json:"user"`
	Groups      []string       `json:"groups"`
	DryRun      bool           `json:"dryRun"`
	Object      map[string]any `json:"object"`
	OldObject   map[string]any `json:"oldObject"`
	// Equivalents are the other groups and versions of the resource.
	Equivalents []struct {
		APIVersion string `json:"apiVersion"`
		Resource   string `json:"resource"`
		Kind       string `json:"kind"`
	} `json:"equivalents"`
}

// TestFiles compares plans with the files in testdata. A file has registrations.yaml, request.yaml,
// namespaces.yaml if any matter, and the plan; the comment at the top describes the proof.
func TestFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/*/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(strings.TrimPrefix(file, "testdata/"), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Contains(archive.Comment, []byte("Source: ")) {
				t.Error("the comment does not say where the rule comes from")
			}
			c := &fileCase{t: t, namespaces: map[string]map[string]string{}}
			var want *txtar.File
			for i := range archive.Files {
				f := &archive.Files[i]
				switch f.Name {
				case "registrations.yaml":
					c.read(f.Data, func(content map[string]any) {
						obj, err := registration.Parse(content)
						if err != nil {
							t.Fatal(err)
						}
						if errs := registration.Validate(obj); len(errs) > 0 {
							t.Fatal(errs.ToAggregate())
						}
						c.registrations.Objects = append(c.registrations.Objects, obj)
					})
				case "request.yaml":
					if err := yaml.UnmarshalStrict(f.Data, &c.request); err != nil {
						t.Fatal(err)
					}
				case "namespaces.yaml":
					c.read(f.Data, func(content map[string]any) {
						u := unstructured.Unstructured{Object: content}
						c.namespaces[u.GetName()] = u.GetLabels()
					})
				case "plan":
					want = f
				default:
					t.Fatalf("unknown file %q", f.Name)
				}
			}
			got := c.explain()
			if *update {
				want.Data = []byte(got)
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(want.Data), got); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

type fileCase struct {
	t             *testing.T
	registrations snapshot.Registrations
	namespaces    map[string]map[string]string
	request       request
}

// read calls f for every document of a YAML file.
func (c *fileCase) read(data []byte, f func(map[string]any)) {
	c.t.Helper()
	for _, document := range strings.Split(string(data), "\n---\n") {
		var content map[string]any
		if err := yaml.Unmarshal([]byte(document), &content); err != nil {
			c.t.Fatal(err)
		}
		f(content)
	}
}

func (c *fileCase) explain() string {
	r := c.request
	gv, err := schema.ParseGroupVersion(r.APIVersion)
	if err != nil {
		c.t.Fatal(err)
	}
	req := &Request{
		Operation:   admission.Operation(r.Operation),
		Resource:    gv.WithResource(r.Resource),
		Subresource: r.Subresource,
		Kind:        gv.WithKind(r.Kind),
		Namespace:   r.Namespace,
		Name:        r.Name,
		User:        &user.DefaultInfo{Name: r.User, Groups: r.Groups},
		DryRun:      r.DryRun,
	}
	in := &Input{
		Objects: AsWritten(object(r.Object), object(r.OldObject)),
		NamespaceLabels: func(_ context.Context, name string) (map[string]string, error) {
			if labels, ok := c.namespaces[name]; ok {
				return labels, nil
			}
			return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, name)
		},
	}
	equivalents := runtime.NewEquivalentResourceRegistryWithIdentity(func(schema.GroupResource) string { return "the same" })
	equivalents.RegisterKindFor(req.Resource, req.Subresource, req.Kind)
	for _, e := range r.Equivalents {
		gv, err := schema.ParseGroupVersion(e.APIVersion)
		if err != nil {
			c.t.Fatal(err)
		}
		kind := gv.WithKind(e.Kind)
		if e.Kind == "" {
			kind = schema.GroupVersionKind{}
		}
		equivalents.RegisterKindFor(gv.WithResource(e.Resource), req.Subresource, kind)
	}

	s := snapshot.Compile(c.registrations)
	if len(s.Problems) > 0 {
		c.t.Fatal(s.Problems)
	}
	all := chain(registration.Initializing, registration.Mutating, registration.External, registration.Validating)
	var b strings.Builder
	if err := New(c.t.Context(), all, s, req, equivalents, in, true).Print(&b); err != nil {
		c.t.Fatal(err)
	}
	return b.String()
}

func object(content map[string]any) runtime.Object {
	if content == nil {
		return nil
	}
	return &unstructured.Unstructured{Object: content}
}
