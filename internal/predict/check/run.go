package check

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/gatehouse-dev/gatehouse/internal/predict/offline"
)

// parallel is how many requests run at the same time.
const parallel = 16

// The parts of a check that take long for many objects.
const (
	preparing = "Prepared"
	applying  = "Applied"
	expanding = "Expanded"
	planning  = "Looked for webhooks of"
	comparing = "Compared"
)

// patience is how long the server may take to serve a new kind, or to read a stored object.
const patience = 20 * time.Second

// run is one check.
type run struct {
	Options
	server *throwaway
	report *Report
	// admin prepares the server; user applies the objects.
	admin, user *client
	// kinds are the kinds that the server serves.
	kinds *offline.Kinds
	tasks []*task
	// old are the objects of the version before, and removed those that were deleted.
	old, removed []*task
	// open is made when the types of an expression seem wrong.
	open *shapes
	// groups are the API groups in which the set defines kinds.
	groups map[string]bool
	// quotas are the namespaces with a quota. mu guards quotas while a snapshot is loaded, the
	// notes of the report while objects are explained, and done.
	mu     sync.Mutex
	quotas map[string]bool
	// done counts the objects of the part of the check that doing names.
	doing string
	done  int
}

// did counts objects with which a part of the check is done.
func (r *run) did(what string, objects int) {
	if r.Progress == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.doing != what {
		r.doing, r.done = what, 0
	}
	r.done += objects
	of := len(r.tasks)
	if what == preparing {
		of = len(r.old)
	}
	r.Progress(what, r.done, of)
}

func (r *run) all(ctx context.Context) error {
	if err := r.applyInOrder(ctx); err != nil {
		return err
	}
	if r.Expand {
		if err := r.expand(ctx); err != nil {
			return err
		}
	}
	if err := r.checkTypes(ctx); err != nil {
		return err
	}
	if err := r.explain(ctx); err != nil {
		return err
	}
	if r.Diff {
		return r.diff(ctx)
	}
	return nil
}

// applyInOrder applies all objects, stage by stage, and reports the server's answers.
func (r *run) applyInOrder(ctx context.Context) (err error) {
	if r.admin, err = newClient(r.server.admin, "", nil); err != nil {
		return err
	}
	r.user = r.admin
	if r.As != "" {
		if r.user, err = newClient(r.server.admin, r.As, r.Groups); err != nil {
			return err
		}
	}
	if r.kinds, err = offline.Discover(r.server.admin); err != nil {
		return err
	}
	for _, name := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
		if err := r.furnishNamespace(ctx, name); err != nil {
			return err
		}
	}
	r.quotas = map[string]bool{}
	if err := r.before(ctx); err != nil {
		return err
	}
	r.plan()
	for _, at := range r.inOrder() {
		var batch []*task
		for _, t := range r.tasks {
			if t.stage == at {
				batch = append(batch, t)
			}
		}
		if err := r.applyAll(ctx, batch); err != nil {
			return err
		}
		if err := r.after(ctx, at, batch); err != nil {
			return err
		}
		if at == bindings && !r.rehearse {
			if err := r.remove(ctx, true); err != nil {
				return err
			}
		}
	}
	if err := r.remove(ctx, false); err != nil {
		return err
	}
	for _, t := range r.tasks {
		if !t.skipped {
			r.report.judged(t)
		}
	}
	r.judgedRemovals()
	if r.Old != nil {
		for _, t := range slices.Concat(r.tasks, r.removed) {
			if !t.skipped {
				t.result.Operation = t.operation()
			}
		}
	}
	return nil
}

// plan makes a task of every object, in the order of the files.
func (r *run) plan() {
	paramKinds := paramKindsOf(r.Set)
	r.groups = map[string]bool{}
	for _, o := range r.Set.Objects {
		if text(o.Content, "kind") == "CustomResourceDefinition" {
			r.groups[text(o.Content, "spec", "group")] = true
		}
		t := &task{object: o, sent: &unstructured.Unstructured{Object: runtime.DeepCopyJSON(o.Content)}}
		r.takeLater(t)
		t.stage = stageFor(t.sent, paramKinds)
		t.name, t.namespace = text(o.Content, "metadata", "name"), text(o.Content, "metadata", "namespace")
		t.result = r.report.add(t)
		if t.skipped = r.skips(t); t.skipped {
			t.result.Verdict = NotJudged
		}
		r.tasks = append(r.tasks, t)
	}
	r.joinServices()
}

// joinServices puts the variants of a service into one stage: only some of them may ask for an
// address or a port.
func (r *run) joinServices() {
	name := func(t *task) string { return cmp.Or(t.namespace, r.Namespace) + "/" + t.name }
	asks := map[string]bool{}
	for _, t := range r.tasks {
		if t.stage == fixed && t.name != "" {
			asks[name(t)] = true
		}
	}
	for _, t := range r.tasks {
		if t.sent.GroupVersionKind().GroupKind() == (schema.GroupKind{Kind: "Service"}) && asks[name(t)] {
			t.stage = fixed
		}
	}
}

// text returns a text of an object, empty when there is none.
func text(content map[string]any, fields ...string) string {
	s, _, _ := unstructured.NestedString(content, fields...)
	return s
}

// applyAll applies the objects of a stage. Of the variants of an object, which several
// documents have, the last one is stored. The other variants are judged before it, as dry runs:
// each variant is judged as if it were the only one.
func (r *run) applyAll(ctx context.Context, batch []*task) error {
	all := len(batch)
	batch = slices.DeleteFunc(slices.Clone(batch), func(t *task) bool { return !r.resolve(t) })
	r.did(applying, all-len(batch))
	variants := map[string][]*task{}
	for _, t := range batch {
		if t.kind.Resource.Group == "" && t.kind.Resource.Resource == "resourcequotas" {
			r.quotas[t.namespace] = true
		}
		if t.name != "" {
			variants[t.key()] = append(variants[t.key()], t)
		}
	}
	lanes := map[string][]*task{}
	var order []string
	for _, t := range batch {
		lane := t.lane(r.quotas)
		if t.name == "" {
			lane = fmt.Sprintf("%s %p", lane, t)
		} else if all := variants[t.key()]; t != all[0] && !t.skipped {
			r.report.duplicate(t, all[0])
		}
		if lanes[lane] == nil {
			order = append(order, lane)
		}
		lanes[lane] = append(lanes[lane], t)
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, lane := range order {
		group.Go(func() error {
			for _, t := range lanes[lane] {
				if err := r.one(groupCtx, t, variants[t.key()]); err != nil {
					return err
				}
				r.did(applying, 1)
			}
			return nil
		})
	}
	return group.Wait()
}

// one applies an object, which may be one of several variants. The error says that there was no
// answer.
func (r *run) one(ctx context.Context, t *task, variants []*task) error {
	t.dryRun = t.name != "" && t != variants[len(variants)-1]
	if t.skipped {
		a, err := r.apply(ctx, r.admin, t)
		t.answer = a
		return err
	}
	dryRun := t.dryRun
	t.dryRun = dryRun || len(t.later) > 0
	a, err := r.apply(ctx, r.user, t)
	t.dryRun = dryRun
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		r.report.unsent(t, err)
		return nil
	}
	t.answer = a
	if t.denials, err = r.denials(ctx, a); err != nil {
		return err
	}
	if !a.ok() && ruleOf(a.status) == ruleUnknownField {
		// One mistake would hide the others.
		again := *t
		again.dryRun, again.ignoresFields = true, true
		if t.lenient, err = r.apply(ctx, r.user, &again); err == nil {
			t.lenientDenials, err = r.denials(ctx, t.lenient)
		}
		if err != nil {
			return err
		}
	}
	t.rejectLater()
	if t.dryRun {
		return nil
	}
	if r.As != "" && t.stage != others && t.stage != fixed && a.code == http.StatusForbidden {
		// The object is made all the same, since others may need it: in the cluster, another user
		// made it.
		_, err = r.apply(ctx, r.admin, t)
		return err
	}
	if t.name == "" || t.accepted() {
		return nil
	}
	for _, other := range slices.Backward(variants[:len(variants)-1]) {
		if other.accepted() {
			// Other objects may need this one, so the last accepted variant is stored.
			other.dryRun = false
			_, err = r.apply(ctx, r.user, other)
			return err
		}
	}
	return nil
}

// resolve finds the resource of the object's kind. It returns false if the kind is not served.
func (r *run) resolve(t *task) bool {
	gvk := t.sent.GroupVersionKind()
	t.kind = r.kinds.Of(gvk)
	if t.skipped {
		if t.namespace = cmp.Or(t.namespace, r.Namespace); !t.kind.Namespaced {
			t.namespace = ""
		}
		t.sent.SetNamespace(t.namespace)
		return t.stage != others && t.stage != fixed && !t.kind.Guessed
	}
	switch known, served := r.inSnapshot(gvk); {
	case known && !served:
		r.report.noKind(t, "the cluster of the snapshot does not serve it")
		return false
	case t.kind.Guessed && known:
		r.report.notChecked(t, "the cluster serves this kind, and the snapshot does not have its definition")
		return false
	case t.kind.Guessed || !known && !t.kind.InKubernetes() && !t.kind.OnlyHere():
		var elsewhere []string
		for _, gv := range r.kinds.Elsewhere(gvk.Kind) {
			elsewhere = append(elsewhere, gv.String())
		}
		r.missingKind(t, elsewhere...)
		return false
	case !known && t.kind.OnlyHere():
		r.report.warn(t, ruleOnlyHere, "", fmt.Sprintf("only Gatehouse serves the kind %s of %s", gvk.Kind, gvk.GroupVersion()))
	}
	if field, err := badMetadata(t.object.Content); err != nil {
		r.report.refuse(t, ruleInvalid, field, err.Error())
		return false
	}
	switch {
	case !t.kind.Namespaced:
		// kubectl does the same.
		t.namespace = ""
		if t.sent.GetNamespace() != "" {
			t.sent.SetNamespace("")
		}
	case t.namespace == "":
		t.namespace = r.Namespace
		t.sent.SetNamespace(t.namespace)
	case r.NamespaceEnforced && t.namespace != r.Namespace:
		r.report.refuse(t, ruleNamespace, "metadata.namespace",
			fmt.Sprintf("the namespace from the provided object %q does not match the namespace %q. You must pass '--namespace=%s' to perform this operation.", t.namespace, r.Namespace, t.namespace))
		return false
	}
	t.result.Namespace = t.namespace
	if t.name == "" && text(t.object.Content, "metadata", "generateName") != "" {
		if r.ServerSide {
			r.report.refuse(t, ruleInvalid, "metadata.generateName", "cannot use generate name with apply")
			return false
		}
		r.report.warn(t, ruleGenerated, "metadata.generateName", "kubectl apply cannot use generateName; kubectl create can")
	}
	return true
}

// badMetadata returns the field of the metadata that cannot be read, and why. kubectl sends
// no such object: the field would be lost.
func badMetadata(content map[string]any) (field string, err error) {
	data, err := json.Marshal(map[string]any{"metadata": content["metadata"]})
	if err != nil {
		return "metadata", err
	}
	var only struct {
		metav1.ObjectMeta `json:"metadata"`
	}
	err = utiljson.Unmarshal(data, &only)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return wrong.Field, err
	}
	return "metadata", err
}

// after completes a stage, so that the objects of the next stage can be applied.
func (r *run) after(ctx context.Context, at stage, batch []*task) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	switch at {
	case definitions:
		for _, t := range batch {
			if !t.accepted() {
				continue
			}
			switch t.kind.Kind.Kind {
			case "Namespace":
				if err := r.furnishNamespace(ctx, t.name); err != nil {
					return err
				}
			case "CustomResourceDefinition":
				problem, err := r.awaitServed(ctx, t.name)
				if err != nil {
					return err
				}
				if problem != "" && !t.skipped && !t.removed {
					r.report.refuse(t, ruleInvalid, "", problem)
				}
			}
		}
		if slices.ContainsFunc(batch, func(t *task) bool { return t.kind != nil && t.kind.Kind.Kind == "CustomResourceDefinition" }) {
			var err error
			r.kinds, err = offline.Discover(r.server.admin)
			return err
		}
	case readings:
		for _, t := range batch {
			if t.accepted() && t.kind.Kind.Kind == "ResourceQuota" {
				if err := r.furnishQuota(ctx, t.namespace, t.name, nil); err != nil {
					return err
				}
			}
		}
	case grants:
		if r.As != "" {
			if err := r.furnishRoles(ctx); err != nil {
				return err
			}
		}
		return r.server.server.CaughtUp(ctx)
	}
	return nil
}

// accepted reports whether the server took the object.
func (t *task) accepted() bool { return t.answer != nil && t.answer.ok() }

// inSnapshot reports whether the snapshot knows which kinds the cluster serves, and whether
// this is one of them.
func (r *run) inSnapshot(gvk schema.GroupVersionKind) (known, served bool) {
	if r.Snapshot == nil || !r.Snapshot.KnowsKinds() {
		return false, false
	}
	if r.Snapshot.Serves(gvk) {
		return true, true
	}
	// The set itself may define the kind.
	return !r.groups[gvk.Group], false
}

// title returns the name of an object in messages: Deployment shop/web.
func title(kind, namespace, name string) string {
	return strings.TrimSpace(kind + " " + strings.TrimPrefix(namespace+"/"+name, "/"))
}
