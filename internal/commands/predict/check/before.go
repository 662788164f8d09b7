package check

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"

	"golang.org/x/sync/errgroup"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/order"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/stage"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

// The operations on an object.
const (
	created   = "create"
	updated   = "update"
	deleted   = "delete"
	unchanged = "unchanged"
)

// mostLeftOut bounds the objects named in a note about objects of the version before that could not be created.
const mostLeftOut = 10

// before creates the objects that exist before the set is applied: the objects of the snapshot and of the version
// before. The objects of the version before are created after mutating registrations and before registrations that only
// reject.
func (r *run) before(ctx context.Context) error {
	for _, u := range r.stage.Unseen() {
		r.report.Unseen = append(r.report.Unseen, &Unseen{Unseen: u})
	}
	stored := r.Snapshot.Objects()
	elsewhere, err := r.definedElsewhere(ctx)
	if err != nil {
		return err
	}
	stored = append(stored, elsewhere...)
	r.report.Notes = append(r.report.Notes, r.stage.Hardened(slices.Concat(r.Set.Unstructured(), stored))...)
	var first, last []*unstructured.Unstructured
	for _, u := range append(stored, r.stage.Named(slices.Concat(stored, r.Set.Unstructured(), r.Old.Unstructured()))...) {
		if r.Old != nil && (refuses(u) || u.GroupVersionKind().GroupKind() == quotaKind) {
			// A quota of the snapshot already counts the objects of the version before.
			last = append(last, u)
		} else {
			first = append(first, u)
		}
	}
	if err := r.load(ctx, first); err != nil || r.Old == nil {
		return err
	}
	r.planOld(slices.Concat(first, last))
	for _, refusing := range []bool{false, true} {
		for _, at := range order.AsApplied {
			var batch []*task
			for _, t := range r.old {
				if t.phase == at && refuses(t.sent) == refusing {
					batch = append(batch, t)
				}
			}
			if err := r.makeOld(ctx, batch); err != nil {
				return err
			}
			if err := r.after(ctx, at, batch); err != nil {
				return err
			}
		}
		if !refusing {
			if err := r.load(ctx, last); err != nil {
				return err
			}
		}
	}
	r.noteOld()
	return nil
}

// load stores objects of the snapshot in the server.
func (r *run) load(ctx context.Context, objects []*unstructured.Unstructured) error {
	// Fields unknown to this release do not matter to it.
	refused, notes, err := r.stage.Load(ctx, metav1.FieldValidationIgnore, objects)
	if err != nil {
		return fmt.Errorf("loading the snapshot: %w", err)
	}
	r.report.Notes = append(r.report.Notes, notes...)
	for i := range refused {
		r.report.Unseen = append(r.report.Unseen, &Unseen{Unseen: stage.LeftOut(&refused[i])})
	}
	return nil
}

// The kinds of quotas and of limit ranges.
var (
	quotaKind  = schema.GroupKind{Kind: "ResourceQuota"}
	limitsKind = schema.GroupKind{Kind: "LimitRange"}
)

// refuses reports whether an object is a registration that only validates.
func refuses(u *unstructured.Unstructured) bool {
	source, ok := registration.SourceOf(u)
	if !ok {
		return false
	}
	d := source.Descriptor()
	if d.Binds {
		d = d.Bound.Descriptor()
	}
	return d.Pass == registration.ValidatingPass
}

// identity identifies an object of a file independently of its version.
type identity struct {
	schema.GroupKind
	namespace, name string
}

func (r *run) identity(kinds *offline.Kinds, u *unstructured.Unstructured) identity {
	gvk := u.GroupVersionKind()
	id := identity{GroupKind: gvk.GroupKind(), name: u.GetName()}
	if kinds.Of(gvk).Namespaced {
		id.namespace = cmp.Or(u.GetNamespace(), r.Namespace)
	}
	return id
}

// planOld makes a task for every object of the version before that the snapshot does not have. If several documents
// have the same object, the last one counts.
func (r *run) planOld(restored []*unstructured.Unstructured) {
	paramKinds := order.ParamKinds(r.Old.Unstructured())
	known := map[identity]bool{}
	for _, u := range restored {
		known[identity{u.GroupVersionKind().GroupKind(), u.GetNamespace(), u.GetName()}] = true
	}
	for _, o := range r.Old.Objects {
		t := &task{object: o, sent: r.toSend(o.Content), removed: true}
		t.name, t.namespace = text(o.Content, "metadata", "name"), text(o.Content, "metadata", "namespace")
		if t.name == "" {
			// Each apply creates another object.
			continue
		}
		t.phase = order.PhaseOf(t.sent, paramKinds)
		r.replaceAddresses(t)
		t.skipped = r.skips(t)
		kind := t.sent.GroupVersionKind().GroupKind()
		t.restored = known[identity{kind, t.namespace, t.name}] || known[identity{kind, cmp.Or(t.namespace, r.Namespace), t.name}]
		r.old = append(r.old, t)
	}
}

// makeOld creates the objects of a phase of the version before, as an administrator.
func (r *run) makeOld(ctx context.Context, batch []*task) error {
	var inOrder []*task
	kinds, last := r.stage.Kinds(), map[identity]int{}
	for _, t := range batch {
		t.kind = kinds.Of(t.sent.GroupVersionKind())
		id := r.identity(kinds, t.sent)
		t.namespace = id.namespace
		t.sent.SetNamespace(t.namespace)
		switch i, again := last[id]; {
		case t.kind.Guessed:
			t.leftOut = "this server does not serve " + t.sent.GetAPIVersion() + " " + t.sent.GetKind()
			r.did(preparing, 1)
		case again:
			inOrder[i] = t
			r.did(preparing, 1)
		default:
			last[id] = len(inOrder)
			inOrder = append(inOrder, t)
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(order.Parallel)
	for _, t := range inOrder {
		group.Go(func() error {
			defer r.did(preparing, 1)
			if t.restored {
				t.there = true
				return nil
			}
			a, err := r.apply(ctx, r.admin, t)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			switch {
			case err != nil:
				t.leftOut = err.Error()
			case !a.OK():
				t.leftOut = a.Status.Message
			default:
				t.there, t.answer, t.stored = true, &answer{Answer: a}, false
			}
			return nil
		})
	}
	return group.Wait()
}

// noteOld adds notes about objects of the version before that could not be created.
func (r *run) noteOld() {
	for _, p := range r.Old.Problems {
		if !p.Warning {
			r.report.Notes = append(r.report.Notes, fmt.Sprintf("the version before: %s: %s", p.File, p.Message))
		}
	}
	n := 0
	for _, t := range r.old {
		if t.leftOut == "" {
			continue
		}
		if n++; n <= mostLeftOut {
			r.report.Notes = append(r.report.Notes, fmt.Sprintf("the version before: %s:%d: %s could not be created, so that it is checked as new: %s",
				t.object.File, t.object.Line, report.Title(t.sent.GetKind(), t.namespace, t.name), t.leftOut))
		}
	}
	if n > mostLeftOut {
		r.report.Notes = append(r.report.Notes, fmt.Sprintf("the version before: %d more objects could not be made", n-mostLeftOut))
	}
}

// deletions returns the objects of the version before that are missing from the files, in the order of deletion: dependent
// objects come first.
func (r *run) deletions(kinds *offline.Kinds) []*task {
	kept := map[identity]bool{}
	for _, t := range r.tasks {
		kept[r.identity(kinds, t.sent)] = true
	}
	var list []*task
	for _, t := range slices.Backward(r.old) {
		if t.there && !kept[r.identity(kinds, t.sent)] {
			list = append(list, t)
		}
	}
	slices.SortStableFunc(list, func(a, b *task) int {
		return cmp.Or(cmp.Compare(b.phase, a.phase), cmp.Compare(owning(a), owning(b)))
	})
	return list
}

// owning is a sort key for the deletions of a phase: CRDs and namespaces are deleted after the objects in them.
func owning(t *task) int {
	switch t.kind.Kind.Kind {
	case "CustomResourceDefinition":
		return 1
	case "Namespace":
		return 2
	}
	return 0
}

// judges reports whether objects of this kind affect admission. Such an object is deleted before the others are
// applied, just as a new one is created before them.
func (t *task) judges() bool {
	kind := t.kind.Kind.GroupKind()
	return t.phase == order.Registrations || t.phase == order.Bindings || kind == quotaKind || kind == limitsKind
}

// remove deletes objects that are missing from the files: either the objects that affect admission, or the others.
func (r *run) remove(ctx context.Context, judging bool) error {
	any := false
	for _, t := range r.deletions(r.stage.Kinds()) {
		if t.judges() != judging || t.skipped {
			continue
		}
		any = true
		t.result = r.report.add(t)
		r.removed = append(r.removed, t)
		// The objects depend on one another, so they are deleted one by one.
		if r.predicting {
			current, err := r.admin.Do(ctx, stage.HTTPRequest{Method: http.MethodGet, Path: t.path()})
			if err != nil {
				return err
			}
			t.current = current.Body
		}
		q := stage.HTTPRequest{Method: http.MethodDelete, Path: t.path(), Query: map[string][]string{"propagationPolicy": {"Background"}}}
		a, err := r.user.Do(ctx, q)
		if err != nil {
			return err
		}
		t.restoreAddresses(a)
		t.answer = r.read(a)
	}
	if !any || !judging {
		return nil
	}
	return r.stage.CaughtUp(ctx)
}

// deletionRejected begins the message of a rejected deletion.
const deletionRejected = "the deletion would be rejected: "

// judgedRemovals reports the server's responses to the deletions, and the objects deleted together with a namespace or
// CRD.
func (r *run) judgedRemovals() {
	for _, t := range r.removed {
		found := len(r.report.Findings)
		r.report.judged(t)
		for i := range r.report.Findings[found:] {
			f := &r.report.Findings[found+i]
			if f.Level == report.Error {
				f.Message = deletionRejected + f.Message
			} else {
				f.Message = "the deletion: " + f.Message
			}
		}
		if !t.accepted() || owning(t) == 0 {
			continue
		}
		for _, other := range r.tasks {
			if other.skipped || !other.accepted() {
				continue
			}
			switch {
			case t.kind.Kind.Kind == "Namespace" && other.namespace == t.name:
				r.report.refuse(other, ruleNamespace, "metadata.namespace", fmt.Sprintf("the files no longer have the namespace %q, which is at %s:%d before: the object would be deleted with it", t.name, t.object.File, t.object.Line))
			case t.kind.Kind.Kind == "CustomResourceDefinition" && other.kind.Resource.GroupResource().String() == t.name:
				r.report.refuse(other, ruleUnknownKind, "apiVersion", fmt.Sprintf("the files no longer have the definition of its kind, which is at %s:%d before: the object would be deleted with it", t.object.File, t.object.Line))
			}
		}
	}
}

// alike reports whether an object is the same before and after a write, apart from its status, which a controller may
// have written in between.
func alike(a, b []byte) bool {
	var before, after unstructured.Unstructured
	if before.UnmarshalJSON(a) != nil || after.UnmarshalJSON(b) != nil {
		return false
	}
	for _, u := range []*unstructured.Unstructured{&before, &after} {
		u.SetResourceVersion("")
		u.SetManagedFields(nil)
		delete(u.Object, "status")
		annotations := u.GetAnnotations()
		// A snapshot does not contain this annotation.
		delete(annotations, corev1.LastAppliedConfigAnnotation)
		u.SetAnnotations(annotations)
	}
	return apiequality.Semantic.DeepEqual(before.Object, after.Object)
}

// operation returns the operation on an object; empty if unknown.
func (t *task) operation() string {
	switch {
	case t.removed:
		return deleted
	case t.stored && (t.unchanged || t.accepted() && len(t.current) > 0 && alike(t.answer.Body, t.current)):
		return unchanged
	case t.stored:
		return updated
	case t.answer != nil:
		return created
	}
	return ""
}
