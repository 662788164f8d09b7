package suite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/stage"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/suite/engines"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/suite/recipe"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
)

// someone makes the requests of suites for Kyverno that name no user: Kyverno's policies may exempt administrators.
var someone = user.DefaultInfo{Name: "gatehouse-test", Groups: []string{"system:authenticated"}}

// hasEngine reports whether the user named an engine that evaluates the suites of a tool.
func (f *finder) hasEngine(name string) bool { return slices.Contains(f.Through, name) }

// recipes returns the recipes of the engines that suites with one test environment need: the engine of the suites, or
// the engines whose policies are in the environment.
func (r *runner) recipes(suites []*Suite, set *worldSet) (list []*recipe.Recipe) {
	for _, one := range r.Engines {
		if suites[0].engine == one.Name || suites[0].engine == "" && slices.ContainsFunc(set.Objects, func(o *manifests.Object) bool {
			return one.Judges(at(o.Content, "apiVersion"), at(o.Content, "kind"))
		}) {
			list = append(list, one)
		}
	}
	return list
}

// venue is a stage with its engines and programs, in which tests run.
type venue struct {
	*running
	stage *stage.Stage
}

// split removes the policies of engines from the objects of a test environment.
func (p *venue) split(set *worldSet) (policies map[*engines.Engine][]*unstructured.Unstructured) {
	policies = map[*engines.Engine][]*unstructured.Unstructured{}
	set.Objects = slices.DeleteFunc(set.Objects, func(o *manifests.Object) bool {
		i := slices.IndexFunc(p.engines, func(e *engines.Engine) bool {
			return e.Judges(at(o.Content, "apiVersion"), at(o.Content, "kind"))
		})
		if i >= 0 {
			policies[p.engines[i]] = append(policies[p.engines[i]], o.Unstructured())
		}
		return i >= 0
	})
	return policies
}

// give gives engines their policies. The returned function removes them.
func (p *venue) give(ctx context.Context, policies map[*engines.Engine][]*unstructured.Unstructured) (take func(context.Context) error, err error) {
	type given struct {
		engine *engines.Engine
		list   []*unstructured.Unstructured
	}
	var all []given
	take = func(ctx context.Context) error {
		var errs []error
		for _, g := range all {
			errs = append(errs, g.engine.Take(ctx, p.stage, g.list))
		}
		return errors.Join(errs...)
	}
	for _, e := range p.engines {
		if len(policies[e]) == 0 {
			continue
		}
		list, err := e.Give(ctx, p.stage, policies[e])
		all = append(all, given{e, list})
		if err != nil {
			return take, err
		}
	}
	return take, nil
}

// alone runs the tests of a suite in a venue that other suites use before and after. The error is about the venue.
func (r *runner) alone(ctx context.Context, p *venue, s *Suite, judged []*Result) error {
	set, err := world([]*Suite{s})
	if err != nil {
		return r.broken(ctx, judged, err)
	}
	policies := p.split(set)
	left, err := p.define(ctx, set, judged)
	for _, o := range set.Objects {
		if kind := at(o.Content, "kind"); kind != "Namespace" && kind != "CustomResourceDefinition" {
			left = append(left, o.Unstructured())
		}
	}
	if err == nil {
		_, err = load(ctx, p.stage, set.Set)
	}
	if err != nil {
		return cmp.Or(r.broken(ctx, judged, err), p.clear(ctx, left))
	}
	take, err := p.give(ctx, policies)
	switch {
	case engines.Untaken(err):
		err = r.broken(ctx, judged, err)
	case err == nil:
		err = r.runAll(ctx, p, judged)
	}
	return cmp.Or(err, take(ctx), p.clear(ctx, left))
}

// clear deletes the objects that a suite left. CRDs are deleted, too, because engines do not distinguish kinds of one
// name.
func (p *venue) clear(ctx context.Context, left []*unstructured.Unstructured) error {
	return cmp.Or(engines.Remove(ctx, p.stage, left), p.stage.Discover())
}

// define creates CRDs for the kinds of requests and objects that neither the server nor a file has. Their objects may
// have any field.
func (p *venue) define(ctx context.Context, set *worldSet, judged []*Result) (made []*unstructured.Unstructured, err error) {
	versions := map[schema.GroupKind][]string{}
	var kinds []schema.GroupKind
	need := func(content map[string]any) {
		gvk := schema.FromAPIVersionAndKind(at(content, "apiVersion"), at(content, "kind"))
		kind := gvk.GroupKind()
		if content == nil || !strings.Contains(gvk.Group, ".") || strings.HasSuffix(gvk.Group, ".k8s.io") || !p.stage.Kinds().Of(gvk).Guessed ||
			set.has("CustomResourceDefinition", "", plural(kind)+"."+gvk.Group) || slices.Contains(versions[kind], gvk.Version) {
			return
		}
		if versions[kind] == nil {
			kinds = append(kinds, kind)
		}
		versions[kind] = append(versions[kind], gvk.Version)
	}
	for _, o := range set.Objects {
		need(o.Content)
	}
	for _, result := range judged {
		need(result.test.request.object)
		need(result.test.request.old)
	}
	for _, kind := range kinds {
		made = append(made, &unstructured.Unstructured{Object: definition(kind, plural(kind), "Namespaced", versions[kind]...)})
	}
	refused, _, err := p.stage.Load(ctx, metav1.FieldValidationStrict, made)
	if err == nil && len(refused) > 0 {
		err = fmt.Errorf("a definition for %s: %s", refused[0].Object.GetName(), refused[0].Status.Message)
	}
	return made, err
}

func plural(kind schema.GroupKind) string {
	resource, _ := meta.UnsafeGuessKindToResource(kind.WithVersion(""))
	return resource.Resource
}

// definition returns a CRD for a kind whose objects may have any field. The first version is the stored one.
func definition(kind schema.GroupKind, plural, scope string, versions ...string) map[string]any {
	list := make([]any, len(versions))
	for i, version := range versions {
		list[i] = map[string]any{
			"name": version, "served": true, "storage": i == 0,
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
		}
	}
	return map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": plural + "." + kind.Group},
		"spec": map[string]any{
			"group": kind.Group, "scope": scope, "names": map[string]any{"kind": kind.Kind, "plural": plural, "singular": strings.ToLower(kind.Kind)},
			"versions": list,
		},
	}
}

// registered adds the webhooks that engines registered, and their policies.
func (n *names) registered(ctx context.Context, p *venue, policies map[*engines.Engine][]*unstructured.Unstructured) error {
	if len(p.engines) == 0 {
		return nil
	}
	for _, list := range policies {
		for _, u := range list {
			n.policies = append(n.policies, u.GetName())
		}
	}
	for _, resource := range []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"} {
		var found unstructured.UnstructuredList
		q := stage.HTTPRequest{Method: http.MethodGet, Path: "/apis/admissionregistration.k8s.io/v1/" + resource}
		if err := p.stage.Admin().Must(ctx, q, &found.Object); err != nil {
			return err
		}
		items, _ := found.Object["items"].([]any)
		for _, item := range items {
			hooks, _ := walk(item, "webhooks").([]any)
			name, _ := walk(item, "metadata", "name").(string)
			n.hooks(name, hooks)
		}
	}
	return nil
}

// impatience is the time for which an engine may not yet enforce a policy that it reports as ready, and cachePatience
// the time that it may take to read the objects around a request. No status shows when these times are over.
const (
	impatience    = 2 * time.Second
	cachePatience = 10 * time.Second
	askAgain      = 100 * time.Millisecond
)

// late reports whether to retry a failed test, because the engine may not have read its policies or objects yet
// (S24.33).
func (r *runner) late(t *Test, o *Outcome, since time.Time) bool {
	switch {
	case t.Suite.engine == "" || t.running == nil:
		return false
	case t.Suite.inventory:
		return time.Since(since) < cachePatience
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return !o.named && !r.named[t.running.name] && time.Since(since) < impatience
}

// through adds a note about an engine to the report.
func (r *runner) through(engine *recipe.Recipe) {
	note := "decided by " + engine.Name + ", in addition to the server"
	if engine.Note != "" {
		note += ": " + engine.Note
	}
	r.note(note)
}

// retry retries the request of a test after a pause.
func retry(ctx context.Context, t *Test, w *stage.Stage, calls *callers) (*Outcome, error) {
	timer := time.NewTimer(askAgain)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-timer.C:
	}
	return t.judge(ctx, w, calls, nil)
}
