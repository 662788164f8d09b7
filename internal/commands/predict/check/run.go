package check

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/crdschema"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/dependents"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/order"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/rejection"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/stage"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

// The parts of a check that take long for many objects.
const (
	preparing = "Prepared"
	applying  = "Applied"
	expanding = "Expanded"
	planning  = "Looked for webhooks of"
	comparing = "Compared"
)

// run is one check.
type run struct {
	Options
	stage  *stage.Stage
	report *Report
	// admin prepares the server; user applies the objects.
	admin, user *stage.Client
	tasks       []*task
	// old are the objects of the version before, and removed the deleted objects.
	old, removed []*task
	// groups are the API groups of the CRDs in the set.
	groups map[string]bool
	// seesManagers reports whether a registration reads managed fields, which are only set by a handler.
	seesManagers bool
	// predicting reports whether there are webhooks or initializers whose calls are predicted. The objects of responses
	// are kept for that.
	predicting bool
	// guessed has the kinds whose plural and scope are a guess.
	guessed map[schema.GroupKind]crdschema.Guess
	// addresses replaces cluster IPs; nil if no service needs that.
	addresses *addresses
	// mu guards the notes of the report while objects are explained, and done.
	mu sync.Mutex
	// done counts the finished objects in the part of the check named by doing.
	doing string
	done  int
}

// did counts objects that a part of the check has finished.
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

func (r *run) runAll(ctx context.Context) error {
	for _, part := range []func(context.Context) error{r.applyInOrder, r.expand, r.checkTypes, r.explain, r.doubtGuesses, r.diff} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

// applyInOrder applies all objects, phase by phase, and reports the server's responses.
func (r *run) applyInOrder(ctx context.Context) error {
	r.admin = r.stage.Admin()
	r.user = r.admin
	if r.As != "" {
		r.user = r.stage.Client(r.As, r.Groups)
	}
	if err := r.before(ctx); err != nil {
		return err
	}
	r.plan()
	for _, at := range order.AsApplied {
		var batch []*task
		for _, t := range r.tasks {
			if t.phase == at {
				batch = append(batch, t)
			}
		}
		if err := r.applyAll(ctx, batch); err != nil {
			return err
		}
		if err := r.after(ctx, at, batch); err != nil {
			return err
		}
		if at == order.Bindings {
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
	r.secondAddresses()
	r.needServerSide()
	r.noteNamespaces()
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

// initializersField is the field for initializers, which only Gatehouse has.
const initializersField = "metadata.initializers"

// plan makes a task for every object, in the order of the files.
func (r *run) plan() {
	paramKinds := order.ParamKinds(r.Set.Unstructured())
	r.groups = map[string]bool{}
	r.seesManagers = slices.ContainsFunc(r.Snapshot.Objects(), seesManagers)
	r.predicting = slices.ContainsFunc(slices.Concat(r.Snapshot.Objects(), r.Set.Unstructured()), r.predicts)
	for _, o := range r.Set.Objects {
		if text(o.Content, "kind") == "CustomResourceDefinition" {
			r.groups[text(o.Content, "spec", "group")] = true
		}
		t := &task{object: o, sent: r.toSend(o.Content)}
		t.later = rejection.TakeLater(r.stage.Fields, t.sent.Object, t.sent.GroupVersionKind())
		if metadata, ok := t.sent.Object["metadata"].(map[string]any); ok && !r.Gatehouse && metadata["initializers"] != nil {
			delete(metadata, "initializers")
			t.later = append(t.later, initializersField)
		}
		t.phase = order.PhaseOf(t.sent, paramKinds)
		r.seesManagers = r.seesManagers || seesManagers(t.sent)
		t.name, t.namespace = text(o.Content, "metadata", "name"), text(o.Content, "metadata", "namespace")
		t.result = r.report.add(t)
		if t.skipped = r.skips(t); t.skipped {
			t.result.Verdict = NotJudged
		}
		r.replaceAddresses(t)
		t.serverSide = !r.ServerSide && tooLongForApply(t.sent)
		r.tasks = append(r.tasks, t)
	}
	r.joinServices()
}

// noteNamespaces adds a note about the objects that name no namespace, if a policy or webhook uses the namespace of the
// object: a server never sees an object without one.
func (r *run) noteNamespaces() {
	uses := func(u *unstructured.Unstructured) bool {
		return u.GroupVersionKind().Group == registration.GroupName && bytes.Contains(stage.Encode(u.Object), []byte("metadata.namespace"))
	}
	given := slices.DeleteFunc(slices.Clone(r.tasks), func(t *task) bool { return !t.given })
	if len(given) == 0 || !slices.ContainsFunc(slices.Concat(r.Snapshot.Objects(), r.Set.Unstructured()), uses) {
		return
	}
	t := given[0]
	r.report.Notes = append(r.report.Notes, fmt.Sprintf("%s without a namespace, the first %s at %s:%d: policies see the namespace %s",
		report.Count(len(given), "object"), report.Title(t.sent.GetKind(), "", t.name), t.object.File, t.object.Line, r.Namespace))
}

// seesManagers reports whether an object is a registration that mentions managedFields.
func seesManagers(u *unstructured.Unstructured) bool {
	return u.GroupVersionKind().Group == registration.GroupName && bytes.Contains(stage.Encode(u.Object), []byte("managedFields"))
}

// toSend returns a copy of a file's object for sending. Only the parts that are changed before sending are copied: the
// namespace, the addresses of a service, and fields that came after the release. The rest is shared with the file, so
// that a large repository is in memory once.
func (r *run) toSend(content map[string]any) *unstructured.Unstructured {
	if r.Fields != nil {
		return &unstructured.Unstructured{Object: runtime.DeepCopyJSON(content)}
	}
	object := maps.Clone(content)
	for _, member := range []string{"metadata", "spec"} {
		if inner, ok := object[member].(map[string]any); ok {
			object[member] = maps.Clone(inner)
		}
	}
	return &unstructured.Unstructured{Object: object}
}

// joinServices puts the variants of a service into one phase, because only some of them may request an address or a
// port.
func (r *run) joinServices() {
	name := func(t *task) string { return cmp.Or(t.namespace, r.Namespace) + "/" + t.name }
	asks := map[string]bool{}
	for _, t := range r.tasks {
		if t.phase == order.Fixed && t.name != "" {
			asks[name(t)] = true
		}
	}
	for _, t := range r.tasks {
		if t.sent.GroupVersionKind().GroupKind() == (schema.GroupKind{Kind: "Service"}) && asks[name(t)] {
			t.phase = order.Fixed
		}
	}
}

// text returns a string of an object, or "".
func text(content map[string]any, fields ...string) string {
	s, _, _ := unstructured.NestedString(content, fields...)
	return s
}

// applyAll applies the objects of a phase. If several documents have variants of an object, the last one is stored. The
// others are sent before it as dry runs, so that each variant is checked as if it were the only one.
func (r *run) applyAll(ctx context.Context, batch []*task) error {
	all := len(batch)
	batch = slices.DeleteFunc(slices.Clone(batch), func(t *task) bool { return !r.resolve(t) })
	r.did(applying, all-len(batch))
	variants := map[string][]*task{}
	for _, t := range batch {
		if t.kind.Resource.Group == "" && t.kind.Resource.Resource == "resourcequotas" {
			r.stage.Lanes.Limit(t.namespace)
		}
		if t.name != "" {
			variants[t.key()] = append(variants[t.key()], t)
		}
	}
	for _, t := range batch {
		if all := variants[t.key()]; t.name != "" && t != all[0] && !t.skipped {
			r.report.duplicate(t, all[0])
		}
	}
	lane := func(t *task) string {
		name := r.stage.Lanes.Of(t.kind, t.namespace, t.name)
		if t.name == "" {
			name = fmt.Sprintf("%s %p", name, t)
		}
		return name
	}
	return order.InLanes(ctx, batch, lane, func(ctx context.Context, t *task) error {
		defer r.did(applying, 1)
		return r.applyObject(ctx, t, variants[t.key()])
	})
}

// applyObject applies an object, which may be one of several variants. The error reports that there was no response.
func (r *run) applyObject(ctx context.Context, t *task, variants []*task) error {
	t.dryRun = t.name != "" && t != variants[len(variants)-1]
	if t.skipped {
		a, err := r.apply(ctx, r.admin, t)
		t.answer = r.read(a)
		return err
	}
	if a := r.alone(ctx, t, variants); a != nil {
		t.answer = &answer{Answer: a}
		return nil
	}
	dryRun := t.dryRun
	t.dryRun = dryRun || len(t.later) > 0
	a, err := r.apply(ctx, r.user, t)
	t.dryRun = dryRun
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		// The object cannot be sent.
		r.report.refuse(t, ruleInvalid, "", err.Error())
		return nil
	}
	t.answer = r.read(a)
	if !r.Diff && r.Old == nil && !r.predicting && !dependents.IsWorkload(t.kind.Kind.GroupKind()) {
		// The object is not needed any more.
		defer func() { t.answer.Body = nil }()
	}
	if !a.OK() && t.answer.rule() == ruleUnknownField {
		// One mistake would hide the others.
		again := *t
		again.dryRun, again.ignoresFields = true, true
		a, err := r.apply(ctx, r.user, &again)
		if err != nil {
			return err
		}
		t.lenient = r.read(a)
	}
	t.rejectLater()
	if t.dryRun {
		return nil
	}
	if r.As != "" && t.phase != order.Others && t.phase != order.Fixed && a.Code == http.StatusForbidden {
		// The object is created anyway, because others may need it: in the cluster, another user created it.
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
	t.kind = r.stage.Kinds().Of(gvk)
	if t.skipped {
		if t.namespace = cmp.Or(t.namespace, r.Namespace); !t.kind.Namespaced {
			t.namespace = ""
		}
		t.sent.SetNamespace(t.namespace)
		return t.phase != order.Others && t.phase != order.Fixed && !t.kind.Guessed
	}
	switch known, served := r.inSnapshot(gvk); {
	case known && !served:
		r.noKind(t, "the cluster of the snapshot does not serve it")
		return false
	case t.kind.Guessed && known:
		r.report.notChecked(t, "the cluster serves this kind, and the snapshot does not have its definition")
		return false
	case t.kind.Guessed || !known && !t.kind.InKubernetes() && !t.kind.OnlyHere():
		var elsewhere []string
		for _, gv := range r.stage.Kinds().Elsewhere(gvk.Kind) {
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
		t.namespace, t.given = r.Namespace, true
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

// badMetadata returns the unreadable field of the metadata, with the reason. kubectl does not send such an object,
// because the field would be lost.
func badMetadata(content map[string]any) (field string, err error) {
	data, err := json.Marshal(map[string]any{"metadata": content["metadata"]})
	if err != nil {
		return "metadata", err
	}
	var only struct {
		metav1.ObjectMeta `json:"metadata"`
	}
	if err = utiljson.Unmarshal(data, &only); err == nil {
		return "", nil
	}
	if field = rejection.Undecodable(map[string]any{"metadata": content["metadata"]}); field == "" {
		field = "metadata"
	}
	return field, err
}

// definitionPatience is the additional time that the server may take for each object of a phase: some CRDs have
// megabytes.
const definitionPatience = 2 * time.Second

// after completes a phase, so that the objects of the next phase can be applied.
func (r *run) after(ctx context.Context, at order.Phase, batch []*task) error {
	patience := stage.Patience + time.Duration(len(batch))*definitionPatience
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("the server has not caught up with %d objects within %s", len(batch), patience))
	defer cancel()
	switch at {
	case order.Definitions:
		for _, t := range batch {
			if !t.accepted() {
				continue
			}
			switch t.kind.Kind.Kind {
			case "Namespace":
				if err := r.stage.FurnishNamespace(ctx, t.name); err != nil {
					return err
				}
			case "CustomResourceDefinition":
				problem, err := r.stage.AwaitServed(ctx, t.name)
				if err != nil {
					return err
				}
				if problem != "" && !t.skipped && !t.removed {
					r.report.refuse(t, ruleInvalid, "", problem)
				}
			}
		}
		if slices.ContainsFunc(batch, func(t *task) bool { return t.kind != nil && t.kind.Kind.Kind == "CustomResourceDefinition" }) {
			return r.stage.Discover()
		}
	case order.Readings:
		for _, t := range batch {
			if t.accepted() && t.kind.Kind.Kind == "ResourceQuota" {
				if err := r.stage.FurnishQuota(ctx, t.namespace, t.name, nil); err != nil {
					return err
				}
			}
		}
	case order.Grants:
		if r.As != "" {
			if err := r.stage.FurnishRoles(ctx); err != nil {
				return err
			}
		}
		return r.stage.CaughtUp(ctx)
	}
	return nil
}

// accepted reports whether the server accepted the object.
func (t *task) accepted() bool { return t.answer != nil && t.answer.OK() }

// inSnapshot reports whether the snapshot knows which kinds the cluster serves, and whether this kind is one of them.
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
