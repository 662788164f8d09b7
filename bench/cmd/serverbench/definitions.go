package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/gatehouse-dev/gatehouse/bench/internal/load"
	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
	"github.com/gatehouse-dev/gatehouse/bench/internal/report"
)

const (
	// perGroup is the number of CRDs in one API group.
	perGroup = 20
	// quiet is the idle time before the memory of a server with CRDs is read.
	quiet = 15 * time.Second
	// served is the time in which a server must serve all CRDs.
	served = 5 * time.Minute
)

// definitionsExplained is printed above the table.
const definitionsExplained = `Medians, with the smallest and largest value. 16 clients create definitions and, as soon as the
server takes it, an object of each; twenty definitions share a group. Half of the fields of a definition are also in the
others. Everything is served when the last object is created. Memory and CPU include etcd.

`

// definitions is a number of CRDs, and the number of fields of each.
type definitions struct{ number, fields int }

func (d definitions) String() string {
	return fmt.Sprintf("%d definitions of %d fields, an object each", d.number, d.fields)
}

func resource(i int) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: fmt.Sprintf("g%d.bench.gatehouse.dev", i/perGroup), Version: "v1", Resource: fmt.Sprintf("things%d", i)}
}

// definition returns the CRD of a namespaced kind. Each object of its schema contains ten fields. Half of these
// objects are the same in all CRDs, like the shared types of an operator's CRDs; the other half are unique.
func (d definitions) definition(i int) *apiextensionsv1.CustomResourceDefinition {
	gvr := resource(i)
	object := func(properties map[string]apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
		return apiextensionsv1.JSONSchemaProps{Type: "object", Properties: properties}
	}
	spec := map[string]apiextensionsv1.JSONSchemaProps{}
	for f := 0; f < d.fields; f += 10 {
		of := "every kind"
		part := fmt.Sprintf("part%d", f/10)
		if f/10%2 == 1 {
			of = "Thing" + fmt.Sprint(i)
			part = fmt.Sprintf("part%dOf%d", f/10, i)
		}
		inner := map[string]apiextensionsv1.JSONSchemaProps{}
		for n := f; n < min(f+10, d.fields); n++ {
			p := apiextensionsv1.JSONSchemaProps{Type: "string", Description: fmt.Sprintf("Field %d says something about %s, in a sentence as long as most descriptions are.", n, of)}
			switch n % 5 {
			case 1:
				p.Type, p.Minimum = "integer", new(float64)
			case 2:
				length := int64(253)
				p.MaxLength, p.Pattern = &length, "^[a-z0-9.-]*$"
			case 3:
				p.Type, p.Items = "array", &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{Type: "string"}}
			}
			inner[fmt.Sprintf("field%d", n)] = p
		}
		spec[part] = object(inner)
	}
	preserve := true
	names := apiextensionsv1.CustomResourceDefinitionNames{Plural: gvr.Resource, Singular: fmt.Sprintf("thing%d", i), Kind: fmt.Sprintf("Thing%d", i), ListKind: fmt.Sprintf("Thing%dList", i)}
	whole := object(map[string]apiextensionsv1.JSONSchemaProps{
		"spec": object(spec), "status": {Type: "object", XPreserveUnknownFields: &preserve},
	})
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: gvr.Resource + "." + gvr.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: gvr.Group, Names: names, Scope: apiextensionsv1.NamespaceScoped,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: gvr.Version, Served: true, Storage: true,
				Schema:       &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &whole},
				Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
			}},
		},
	}
}

// object returns a custom resource of a CRD.
func object(i int) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": resource(i).GroupVersion().String(), "kind": fmt.Sprintf("Thing%d", i),
		"metadata": map[string]any{"name": "one"},
		"spec":     map[string]any{"part0": map[string]any{"field0": "text", "field1": int64(1)}},
	}}
}

// create creates a CRD and, as soon as the server accepts it, a custom resource.
func (d definitions) create(ctx context.Context, crds clientset.Interface, objects dynamic.Interface, i int) error {
	if _, err := crds.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, d.definition(i), metav1.CreateOptions{}); err != nil {
		return err
	}
	for {
		_, err := objects.Resource(resource(i)).Namespace(metav1.NamespaceDefault).Create(ctx, object(i), metav1.CreateOptions{})
		if !apierrors.IsNotFound(err) && !apierrors.IsTooManyRequests(err) {
			return err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// withDefinitions measures a server with CRDs.
func (o *options) withDefinitions(ctx context.Context, b peer.Binaries, kind peer.Kind, dir string, d definitions, r *report.Table) (err error) {
	s, err := peer.Start(ctx, b, kind, dir)
	if err != nil {
		return err
	}
	defer func() {
		if s != nil {
			err = errors.Join(err, s.Stop())
		}
	}()
	add := func(what, unit string, value float64) { r.Add(what+", "+d.String(), unit, string(kind), value) }
	crds, err := clientset.NewForConfig(s.Config)
	if err != nil {
		return err
	}
	objects, err := dynamic.NewForConfig(s.Config)
	if err != nil {
		return err
	}
	before, err := cpu(s)
	if err != nil {
		return err
	}
	began := time.Now()
	creating, cancel := context.WithTimeoutCause(ctx, served, fmt.Errorf("not all definitions are served within %s", served))
	defer cancel()
	if err := atOnce(creating, d.number, func(ctx context.Context, i int) error { return d.create(ctx, crds, objects, i) }); err != nil {
		return err
	}
	add("all served", "s", time.Since(began).Seconds())
	now, err := cpu(s)
	if err != nil {
		return err
	}
	add("CPU until then, etcd included", "s", (now - before).Seconds())
	select {
	case <-time.After(quiet):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if now, err = cpu(s); err != nil {
		return err
	}
	add("CPU with 15 s after, etcd included", "s", (now - before).Seconds())
	if err := memory(s, func(what string, value float64) { add(what+" 15 s later, server and etcd", "MiB", value) }); err != nil {
		return err
	}
	goroutines, err := metric(ctx, s, "go_goroutines")
	if err != nil {
		return err
	}
	add("goroutines of the server", "", goroutines)
	if err := o.profile(s, fmt.Sprint(d.number)); err != nil {
		return err
	}
	err, s = s.Stop(), nil
	if err != nil {
		return err
	}
	if s, err = peer.Start(ctx, b, kind, dir); err != nil {
		return err
	}
	add("time to ready, second start", "s", s.Ready.Seconds())
	if now, err = cpu(s); err != nil {
		return err
	}
	add("CPU until ready, second start, etcd included", "s", now.Seconds())
	if objects, err = dynamic.NewForConfig(s.Config); err != nil {
		return err
	}
	// Each kind still has its object.
	if err := atOnce(ctx, d.number, func(ctx context.Context, i int) error {
		_, err := objects.Resource(resource(i)).Namespace(metav1.NamespaceDefault).Get(ctx, "one", metav1.GetOptions{})
		return err
	}); err != nil {
		return err
	}
	select {
	case <-time.After(quiet):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := memory(s, func(what string, value float64) {
		add(what+" 15 s after a second start, server and etcd", "MiB", value)
	}); err != nil {
		return err
	}
	rate, cost, err := o.creates(ctx, s)
	if err != nil {
		return err
	}
	add("creates of ConfigMaps, 16 clients", "/s", rate)
	add("server CPU for a create of a ConfigMap", "us", cost)
	return nil
}

// withoutDefinitions measures creates on a separate server: the created objects would count as memory of the CRDs.
func (o *options) withoutDefinitions(ctx context.Context, b peer.Binaries, kind peer.Kind, dir string, r *report.Table) (err error) {
	s, err := peer.Start(ctx, b, kind, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	rate, cost, err := o.creates(ctx, s)
	if err != nil {
		return err
	}
	r.Add("creates of ConfigMaps, no definition, 16 clients", "/s", string(kind), rate)
	r.Add("server CPU for a create, no definition, 16 clients", "us", string(kind), cost)
	return nil
}

// creates measures how many ConfigMaps 16 clients create per second, and the server's CPU time for each, in
// microseconds.
func (o *options) creates(ctx context.Context, s *peer.Server) (rate, cost float64, err error) {
	m, err := measure(ctx, s, load.ConfigMap, 16, o.duration)
	return m.rate, m.cpu.Seconds() * 1e6, err
}

// cpu is the CPU time of a server, its etcd and its helpers.
func cpu(s *peer.Server) (time.Duration, error) {
	var sum time.Duration
	for _, p := range s.Processes() {
		one, err := p.CPU()
		if err != nil {
			return 0, err
		}
		sum += one
	}
	return sum, nil
}

// memory reports the memory of a server and its etcd, in MiB.
func memory(s *peer.Server, add func(what string, mib float64)) error {
	server, etcd, err := s.RSS()
	if err != nil {
		return err
	}
	add("memory", float64(server+etcd)/(1<<20))
	if server, etcd, err = s.Anonymous(); err != nil {
		return err
	}
	add("anonymous memory", float64(server+etcd)/(1<<20))
	return nil
}

// metric reads a metric without labels.
func metric(ctx context.Context, s *peer.Server, name string) (float64, error) {
	c := load.NewClient(s)
	defer c.Close()
	var text bytes.Buffer
	if err := c.Do(ctx, load.Request{Path: "/metrics", Accept: "text/plain"}, &text); err != nil {
		return 0, err
	}
	for line := range strings.Lines(text.String()) {
		var value float64
		if _, err := fmt.Sscanf(line, name+" %g", &value); err == nil {
			return value, nil
		}
	}
	return 0, fmt.Errorf("/metrics has no %s", name)
}

// profile makes the server write its profiles, and renames the files to begin with a name.
func (o *options) profile(s *peer.Server, name string) error {
	if o.profiles == "" || s.Kind == peer.KubeAPIServer {
		return nil
	}
	last := filepath.Join(o.profiles, "goroutine.pprof")
	if err := s.Process.WriteProfiles(); err != nil {
		return err
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if _, err := os.Stat(last); err == nil {
			break
		} else if time.Now().After(deadline) {
			return errors.New("the server writes no profiles: is it built from ./cmd/profiled?")
		}
	}
	var errs []error
	for _, file := range []string{"memory.txt", "heap.pprof", "goroutine.pprof"} {
		errs = append(errs, os.Rename(filepath.Join(o.profiles, file), filepath.Join(o.profiles, name+"-"+file)))
	}
	return errors.Join(errs...)
}
