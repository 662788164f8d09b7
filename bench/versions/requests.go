package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/bench/internal/celcalls"
	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

// asked is a request: a dry run of a create.
type asked struct {
	title, path string
	object      map[string]any
}

// answered is the answer of a server to a request.
type answered struct {
	code int
	text string
}

// compareRequests sends the same requests to a real server of a release, and to Gatehouse as this release, and writes
// the differences. It counts the differences with a reason in reasons, and lists all others. It returns an error if
// there are others.
func compareRequests(ctx context.Context, w io.Writer, b peer.Binaries, release, real, dir string) (err error) {
	old := b
	old.KubeAPIServer = real
	var configs [2]*rest.Config
	for i, start := range []func() (*peer.Server, error){
		func() (*peer.Server, error) {
			return peer.Start(ctx, old, peer.KubeAPIServer, filepath.Join(dir, "real-"+release))
		},
		func() (*peer.Server, error) {
			return peer.Start(ctx, b, peer.Gatehouse, filepath.Join(dir, "emulated-"+release), "--emulated-version="+release, "--later-fields=reject")
		},
	} {
		s, failed := start()
		if failed != nil {
			return failed
		}
		defer func() { err = errors.Join(err, s.Stop()) }()
		configs[i] = s.Config
	}
	requests, err := requestsTo(configs[0])
	if err != nil {
		return err
	}
	var answers [2][]answered
	for i, config := range configs {
		if answers[i], err = askAll(ctx, config, requests); err != nil {
			return err
		}
	}
	counts, rejected, passes, failures := map[string]int{}, 0, 0, 0
	for i, q := range requests {
		r, g := answers[0][i], answers[1][i]
		if r.code >= 400 {
			rejected++
		}
		if r == g {
			continue
		}
		if why := reasonOf(&q, &r, &g); why != "" {
			if counts[why] == 0 {
				fmt.Fprintf(w, "for example, %s\n    real %s: %s\n    emulated: %s\n", q.title, release, r.text, g.text)
			}
			counts[why]++
			continue
		}
		kind := "OTHER WORDS"
		switch {
		case r.code >= 400 && g.code < 400:
			kind = "FALSE PASS"
			passes++
		case r.code < 400 && g.code >= 400:
			kind = "FALSE FAILURE"
			failures++
		}
		fmt.Fprintf(w, "%s: %s\n    real %s: %d %s\n    emulated: %d %s\n", kind, q.title, release, r.code, r.text, g.code, g.text)
		counts[kind]++
	}
	fmt.Fprintf(w, "%s: %d requests, %d rejected by the real server; %d false passes, %d false failures\n", release, len(requests), rejected, passes, failures)
	for _, why := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(w, "  %d %s\n", counts[why], why)
	}
	wrong := passes + failures
	c := &commands{w: w, gatehouse: b.Gatehouse, release: release, dir: filepath.Join(dir, "objects-"+release), requests: requests, real: answers[0]}
	for _, judge := range []struct {
		name string
		by   func(context.Context, *rest.Config) (map[int]answered, error)
	}{{"check", c.check}, {"test", c.test}, {"explain", c.explain}} {
		found, err := judge.by(ctx, configs[0])
		if err != nil {
			return fmt.Errorf("gatehouse %s: %w", judge.name, err)
		}
		wrong += c.compare(judge.name, found)
	}
	if wrong > 0 {
		err = fmt.Errorf("%d verdicts of Gatehouse as %s differ from a real server", wrong, release)
	}
	return err
}

// reasonOf returns why two answers to a request may differ; empty if there is no reason.
func reasonOf(q *asked, real, emulated *answered) string {
	kind := fmt.Sprint(q.object["kind"])
	switch {
	case real.code == http.StatusUnprocessableEntity && emulated.code == real.code:
		return "report in the words of the newest release an invalid " + kind
	}
	return ""
}

// requestsTo creates requests for the kinds that a server serves: for each field of the newest types an object with
// the field, in the first kind that has the type, and for each CEL function a policy and a CRD that call it.
func requestsTo(config *rest.Config) (requests []asked, err error) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	_, lists, err := client.ServerGroupsAndResources()
	if err != nil {
		return nil, err
	}
	if err := apiextensionsv1.AddToScheme(scheme.Scheme); err != nil {
		return nil, err
	}
	slices.SortFunc(lists, func(a, b *metav1.APIResourceList) int { return strings.Compare(a.GroupVersion, b.GroupVersion) })
	f := fielder{seen: map[string]int{}}
	at := map[string]string{}
	for _, list := range lists {
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") || !slices.Contains(r.Verbs, "create") {
				continue
			}
			root := path.Join("/apis", list.GroupVersion)
			if !strings.Contains(list.GroupVersion, "/") {
				root = "/api/" + list.GroupVersion
			}
			if r.Namespaced {
				root += "/namespaces/default"
			}
			at[r.Kind] = root + "/" + r.Name
			typed, err := scheme.Scheme.New(schema.FromAPIVersionAndKind(list.GroupVersion, r.Kind))
			if err != nil {
				continue
			}
			f.each(reflect.TypeOf(typed).Elem(), nil, func(field []string, value any) {
				object := map[string]any{"metadata": map[string]any{"name": "a"}}
				put(object, field, value)
				object["apiVersion"], object["kind"] = list.GroupVersion, r.Kind
				requests = append(requests, asked{list.GroupVersion + " " + r.Kind + " " + strings.Join(field, "."), at[r.Kind], object})
			})
		}
	}
	calls := celcalls.Expressions()
	for _, call := range slices.Sorted(maps.Keys(calls)) {
		requests = append(requests,
			asked{"policy " + call, at["ValidatingAdmissionPolicy"], celcalls.Policy("a", calls[call])},
			asked{"definition " + call, at["CustomResourceDefinition"], ruled(strings.ReplaceAll(calls[call], "object", "self"))})
	}
	return requests, nil
}

// ruled returns a CRD with a rule.
func ruled(rule string) map[string]any {
	return map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "as.example.com"},
		"spec": map[string]any{
			"group": "example.com", "scope": "Namespaced", "names": map[string]any{"plural": "as", "kind": "A"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": map[string]any{
				"type": "object", "properties": map[string]any{"a": map[string]any{
					"type": "string", "maxLength": 5, "x-kubernetes-validations": []any{map[string]any{"rule": rule}},
				}},
			}}}},
		},
	}
}

// fielder finds the fields of types.
type fielder struct{ seen map[string]int }

// often is the number of kinds in which a field is tried.
const often = 2

// each calls found with the path and a value of each field that was not yet tried often.
func (f fielder) each(of reflect.Type, at []string, found func([]string, any)) {
	for i := range of.NumField() {
		field := of.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		inner := field.Type
		if name == "" && strings.Contains(options, "inline") || field.Anonymous && name == "" {
			if inner.Kind() == reflect.Struct && inner != reflect.TypeFor[metav1.TypeMeta]() {
				f.each(inner, at, found)
			}
			continue
		}
		if name == "" || name == "-" || len(at) > 12 {
			continue
		}
		here := append(slices.Clone(at), name)
		if key := of.PkgPath() + of.Name() + "." + name; f.seen[key] < often {
			f.seen[key]++
			found(here, valueOf(inner))
		}
		steps := here
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice || inner.Kind() == reflect.Map {
			switch inner.Kind() {
			case reflect.Slice:
				steps = append(slices.Clone(steps), "[]")
			case reflect.Map:
				steps = append(slices.Clone(steps), "a")
			}
			inner = inner.Elem()
		}
		if key := inner.PkgPath() + inner.Name(); inner.Kind() == reflect.Struct && !opaque(inner) && f.seen[key] < often {
			f.seen[key]++
			f.each(inner, steps, found)
		}
	}
}

// opaque reports whether a type has its own JSON encoding, independent of its fields.
func opaque(of reflect.Type) bool {
	return reflect.PointerTo(of).Implements(reflect.TypeFor[json.Marshaler]())
}

// valueOf returns a value of a type.
func valueOf(of reflect.Type) any {
	switch of {
	case reflect.TypeFor[resource.Quantity](), reflect.TypeFor[intstr.IntOrString]():
		return 1
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime]():
		return "2026-01-01T00:00:00.000000Z"
	case reflect.TypeFor[metav1.Duration]():
		return "1s"
	case reflect.TypeFor[runtime.RawExtension](), reflect.TypeFor[metav1.FieldsV1]():
		return map[string]any{}
	}
	switch of.Kind() {
	case reflect.Pointer:
		return valueOf(of.Elem())
	case reflect.Slice:
		if of.Elem().Kind() == reflect.Uint8 {
			return "YQ=="
		}
		return []any{valueOf(of.Elem())}
	case reflect.Map:
		return map[string]any{"a": valueOf(of.Elem())}
	case reflect.String:
		return "a"
	case reflect.Bool:
		return true
	case reflect.Struct:
		return map[string]any{}
	}
	return 1
}

// put puts a value at a path of names, in which [] is the only element of a list.
func put(into map[string]any, at []string, value any) {
	name, rest := at[0], at[1:]
	lists := 0
	for len(rest) > 0 && rest[0] == "[]" {
		lists, rest = lists+1, rest[1:]
	}
	if len(rest) > 0 {
		inner, ok := into[name].(map[string]any)
		if !ok || lists > 0 {
			inner = map[string]any{}
		}
		put(inner, rest, value)
		value = inner
	}
	for range lists {
		value = []any{value}
	}
	into[name] = value
}

// askAll sends the requests, several at a time.
func askAll(ctx context.Context, config *rest.Config, requests []asked) ([]answered, error) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	// In a cluster, a controller creates the service account.
	account := `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}`
	err = client.RESTClient().Post().AbsPath("/api/v1/namespaces/default/serviceaccounts").SetHeader("Content-Type", "application/json").Body([]byte(account)).Do(ctx).Error()
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	answers := make([]answered, len(requests))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for i, q := range requests {
		group.Go(func() error {
			body, err := json.Marshal(q.object)
			if err != nil {
				return err
			}
			var code int
			data, failed := client.RESTClient().Post().AbsPath(q.path).Param("dryRun", "All").Param("fieldValidation", "Strict").
				SetHeader("Content-Type", "application/json").SetHeader("Accept", "application/json").Body(body).Do(ctx).StatusCode(&code).Raw()
			if code == 0 {
				return fmt.Errorf("%s: %w", q.title, failed)
			}
			answers[i].code = code
			if code < 400 {
				return nil
			}
			status := metav1.Status{}
			if err := json.Unmarshal(data, &status); err != nil {
				return fmt.Errorf("%s: %w: %q", q.title, err, data)
			}
			answers[i].text = drawn.ReplaceAllString(status.Message, "ID")
			return nil
		})
	}
	return answers, group.Wait()
}

// drawn matches the random UIDs of a server.
var drawn = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
