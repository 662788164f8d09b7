package engines

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/stage"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/suite/recipe"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

const (
	// startPatience is the timeout for an engine to get ready, and policyPatience for it to apply a policy.
	startPatience  = 3 * time.Minute
	policyPatience = 30 * time.Second
)

// Engine is a policy engine next to a stage.
type Engine struct {
	*recipe.Recipe
	*Seat
}

// Prepare makes the seat of an engine. The caller must stop it.
func Prepare(r *recipe.Recipe) (*Engine, error) {
	seat, err := NewSeat(r.Service)
	if err != nil {
		return nil, err
	}
	seat.Set("DIR", r.Dir)
	seat.Set("PROGRAM", r.Path)
	return &Engine{r, seat}, nil
}

// Start installs the engine on a stage, which must know the service's address, and returns when the engine is ready.
func (e *Engine) Start(ctx context.Context, w *stage.Stage) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startPatience, fmt.Errorf("it is not ready within %s", startPatience))
	defer cancel()
	defer func() {
		if err != nil {
			err = fmt.Errorf("the engine %s: %w%s", e.Name, err, e.Printed())
		}
	}()
	var objects []*unstructured.Unstructured
	for _, name := range e.Manifests {
		set, err := manifests.Read([]string{filepath.Join(e.Dir, name)}, nil)
		if err != nil {
			return err
		}
		for _, o := range set.Objects {
			content := o.Content
			if changed := Trusting(content, e.Service, e.Authority); changed != nil {
				content = changed
			}
			objects = append(objects, &unstructured.Unstructured{Object: content})
		}
	}
	for _, o := range e.Objects {
		objects = append(objects, &unstructured.Unstructured{Object: runtime.DeepCopyJSON(o)})
	}
	// Webhooks are registered when the engine can answer them.
	var later []*unstructured.Unstructured
	objects = slices.DeleteFunc(objects, func(u *unstructured.Unstructured) bool {
		registers := strings.HasSuffix(u.GetKind(), "WebhookConfiguration")
		if registers {
			later = append(later, u)
		}
		return registers
	})
	if err := load(ctx, w, objects); err != nil {
		return err
	}
	e.Set("KUBECONFIG", w.Address().Kubeconfig)
	if err := e.Seat.Start(e.Command, e.Env, e.Dir); err != nil {
		return err
	}
	if err := e.Await(ctx); err != nil {
		return err
	}
	if e.Ready != "" {
		if err := e.answers(ctx, e.Expand(e.Ready)); err != nil {
			return err
		}
	}
	if err := load(ctx, w, later); err != nil {
		return err
	}
	return w.CaughtUp(ctx)
}

// load stores the objects of an engine in a stage. A rejected object is an error.
func load(ctx context.Context, w *stage.Stage, objects []*unstructured.Unstructured) error {
	refused, _, err := w.Load(ctx, metav1.FieldValidationWarn, objects)
	if err == nil && len(refused) > 0 {
		r := &refused[0]
		err = fmt.Errorf("%s of its manifests is not taken: %s", report.Title(r.Object.GetKind(), r.Object.GetNamespace(), r.Object.GetName()), r.Status.Message)
	}
	return err
}

// answers waits until a URL of the engine responds with 200.
func (e *Engine) answers(ctx context.Context, at string) error {
	// The certificate is the engine's own, and the port belongs to this machine.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: 2 * time.Second}
	return e.until(ctx, func() (bool, error) {
		q, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
		if err != nil {
			return false, err
		}
		a, err := client.Do(q)
		if err != nil {
			return false, nil
		}
		_, err = io.Copy(io.Discard, io.LimitReader(a.Body, 1<<20))
		a.Body.Close()
		return err == nil && a.StatusCode == http.StatusOK, nil
	})
}

// errUntaken is an error about a policy that an engine does not apply.
type errUntaken struct{ error }

// Untaken reports whether an error is about a policy, and not about the engine.
func Untaken(err error) bool { return errors.As(err, new(errUntaken)) }

// Give stores policies for the engine, in enforcing mode, and returns when the engine applies them. taken are the
// stored policies, also after an error: the caller must remove them.
func (e *Engine) Give(ctx context.Context, w *stage.Stage, policies []*unstructured.Unstructured) (taken []*unstructured.Unstructured, err error) {
	byPlace := map[int][]*unstructured.Unstructured{}
	for _, u := range policies {
		u = u.DeepCopy()
		at := e.Place(u.GetAPIVersion(), u.GetKind())
		e.Policies[at].Enforce(u.Object)
		byPlace[at] = append(byPlace[at], u)
	}
	for _, at := range slices.Sorted(maps.Keys(byPlace)) {
		of := &e.Policies[at]
		if err := e.awaitKinds(ctx, w, byPlace[at]); err != nil {
			return taken, err
		}
		refused, _, err := w.Load(ctx, metav1.FieldValidationIgnore, byPlace[at])
		if err != nil {
			return taken, err
		}
		taken = append(taken, byPlace[at]...)
		if len(refused) > 0 {
			r := &refused[0]
			return taken, errUntaken{fmt.Errorf("the engine %s does not take %s: %s", e.Name, report.Title(r.Object.GetKind(), r.Object.GetNamespace(), r.Object.GetName()), r.Status.Message)}
		}
		for _, u := range byPlace[at] {
			if of.Ready != "" {
				if err := e.awaitPolicy(ctx, w, of, u); err != nil {
					return taken, err
				}
			}
		}
	}
	return taken, w.CaughtUp(ctx)
}

// awaitKinds waits until the stage serves the kinds of policies, which an earlier policy may have created.
func (e *Engine) awaitKinds(ctx context.Context, w *stage.Stage, policies []*unstructured.Unstructured) error {
	var without *unstructured.Unstructured
	ctx, cancel := context.WithTimeoutCause(ctx, policyPatience, errUntaken{errors.New("the server does not serve the kind")})
	defer cancel()
	unserved := func() bool {
		i := slices.IndexFunc(policies, func(u *unstructured.Unstructured) bool { return w.Kinds().Of(u.GroupVersionKind()).Guessed })
		if i >= 0 {
			without = policies[i]
		}
		return i >= 0
	}
	if !unserved() {
		return nil
	}
	err := e.until(ctx, func() (bool, error) {
		if err := w.Discover(); err != nil {
			return false, err
		}
		return !unserved(), nil
	})
	if errors.As(err, new(errUntaken)) {
		return errUntaken{fmt.Errorf("%s %s: %w", without.GetAPIVersion(), report.Title(without.GetKind(), "", without.GetName()), err)}
	}
	return err
}

// Take removes policies that Give stored, and returns when they are gone.
func (e *Engine) Take(ctx context.Context, w *stage.Stage, policies []*unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeoutCause(ctx, policyPatience, fmt.Errorf("the engine %s keeps policies that were deleted", e.Name))
	defer cancel()
	return Remove(ctx, w, policies)
}

// Remove deletes objects, last one first, and returns when they are gone.
func Remove(ctx context.Context, w *stage.Stage, objects []*unstructured.Unstructured) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for _, u := range slices.Backward(objects) {
		kind := w.Kinds().Of(u.GroupVersionKind())
		if kind.Guessed {
			continue
		}
		q := stage.HTTPRequest{Method: http.MethodDelete, Path: stage.Path(kind, namespaceOf(u), u.GetName())}
		a, err := w.Admin().Do(ctx, q)
		if err != nil {
			return err
		}
		if a.Code != http.StatusNotFound {
			if err := a.Err(q); err != nil {
				return err
			}
		}
	}
	for _, u := range objects {
		kind := w.Kinds().Of(u.GroupVersionKind())
		for !kind.Guessed {
			found, err := w.Get(ctx, kind, namespaceOf(u), u.GetName())
			if err != nil {
				return err
			}
			if found == nil {
				break
			}
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-tick.C:
			}
		}
	}
	return nil
}

// namespaceOf returns the namespace of an object. It is not used for cluster-scoped kinds.
func namespaceOf(u *unstructured.Unstructured) string {
	return cmp.Or(u.GetNamespace(), metav1.NamespaceDefault)
}

// awaitPolicy waits until the engine applies a policy.
func (e *Engine) awaitPolicy(ctx context.Context, w *stage.Stage, of *recipe.Policies, u *unstructured.Unstructured) error {
	late := errUntaken{fmt.Errorf("within %s", policyPatience)}
	ctx, cancel := context.WithTimeoutCause(ctx, policyPatience, late)
	defer cancel()
	kind := w.Kinds().Of(u.GroupVersionKind())
	var now *unstructured.Unstructured
	err := e.until(ctx, func() (bool, error) {
		found, err := w.Get(ctx, kind, namespaceOf(u), u.GetName())
		if err != nil || found == nil {
			return false, err
		}
		now = found
		return of.Applied(ctx, found.Object), nil
	})
	if errors.As(err, new(errUntaken)) {
		status := "it has no status"
		if now != nil && now.Object["status"] != nil {
			data, _ := json.Marshal(now.Object["status"])
			status = "its status is " + string(data[:min(len(data), 500)])
		}
		return errUntaken{fmt.Errorf("the engine %s does not evaluate %s %w: %s", e.Name, report.Title(u.GetKind(), u.GetNamespace(), u.GetName()), err, status)}
	}
	return err
}

// Trusting returns a copy of a webhook configuration, or of a CRD with a conversion webhook, whose webhooks of a
// service trust a certificate authority; nil if nothing changes.
func Trusting(content map[string]any, service string, authority []byte) map[string]any {
	copied := runtime.DeepCopyJSON(content)
	var hooks []any
	switch kind, _ := content["kind"].(string); {
	case strings.HasSuffix(kind, "WebhookConfiguration"):
		hooks, _ = copied["webhooks"].([]any)
	case kind == "CustomResourceDefinition":
		hook, _, _ := unstructured.NestedFieldNoCopy(copied, "spec", "conversion", "webhook")
		hooks = []any{hook}
	}
	changed := false
	for _, h := range hooks {
		hook, _ := h.(map[string]any)
		to, _ := hook["clientConfig"].(map[string]any)
		namespace, _, _ := unstructured.NestedString(to, "service", "namespace")
		name, _, _ := unstructured.NestedString(to, "service", "name")
		if bundle, _ := to["caBundle"].(string); namespace+"/"+name != service || bundle != "" {
			continue
		}
		to["caBundle"] = base64.StdEncoding.EncodeToString(authority)
		changed = true
	}
	if !changed {
		return nil
	}
	return copied
}
