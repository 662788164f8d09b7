package admission

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
	"github.com/gatehouse-dev/gatehouse/test/hooktest"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// someSets is the default number of random sets in a test of the ordinary run.
const someSets = 2000

var (
	propertySets = flag.Uint64("sets", 0, "how many random sets of registrations TestPlanIsWhatHappens makes; 0: some, and more in the long run")
	propertySeed = flag.Uint64("seed", 0, "the one set that TestPlanIsWhatHappens makes; 0 means many")
)

// told is the content of one review, as far as a plan contains it.
type told struct {
	Path       string
	Review     string
	APIVersion string
	Kind       string
	Resource   metav1.GroupVersionResource
	Part       string
	// Timeout is the timeout in the call.
	Timeout string
	// ObjectKind is the kind of the objects in the review.
	ObjectKind string

	uid types.UID
}

// recorder records the reviews that the webhooks of one set receive, and allows each.
type recorder struct {
	mu struct {
		sync.Mutex
		told []told
	}
}

func (r *recorder) take() []told {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.mu.told
	r.mu.told = nil
	return all
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	type sent struct {
		UID         types.UID                   `json:"uid"`
		Kind        metav1.GroupVersionKind     `json:"kind"`
		Resource    metav1.GroupVersionResource `json:"resource"`
		SubResource string                      `json:"subResource"`
		Object      *metav1.TypeMeta            `json:"object"`
		OldObject   *metav1.TypeMeta            `json:"oldObject"`
	}
	var review struct {
		APIVersion string `json:"apiVersion"`
		Request    *sent  `json:"request"`
		Spec       *sent  `json:"spec"`
	}
	if err := json.NewDecoder(request.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	asked := cmp.Or(review.Request, review.Spec)
	t := told{
		Path: strings.TrimPrefix(request.URL.Path, "/"), Review: review.APIVersion,
		APIVersion: metav1.GroupVersion{Group: asked.Kind.Group, Version: asked.Kind.Version}.String(), Kind: asked.Kind.Kind,
		Resource: asked.Resource, Part: asked.SubResource,
		Timeout: request.URL.Query().Get("timeout"), uid: asked.UID,
	}
	for _, object := range []*metav1.TypeMeta{asked.Object, asked.OldObject} {
		if object != nil {
			t.ObjectKind = object.APIVersion + " " + object.Kind
		}
	}
	r.mu.Lock()
	r.mu.told = append(r.mu.told, t)
	r.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if review.Spec != nil {
		fmt.Fprint(w, `{"status":{"allowed":true}}`)
		return
	}
	fmt.Fprintf(w, `{"apiVersion":%q,"kind":"AdmissionReview","response":{"uid":%q,"allowed":true}}`, review.APIVersion, asked.UID)
}

// stamp is a built-in admission plugin that changes objects with a marker, once.
type stamp struct{ *admission.Handler }

func (s stamp) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	m, err := meta.Accessor(a.GetObject())
	if err != nil || a.GetObject() == nil || m.GetAnnotations()["stamped"] == "" || m.GetAnnotations()["stamp"] == "done" {
		return nil
	}
	annotations := map[string]string{"stamp": "done"}
	for k, v := range m.GetAnnotations() {
		annotations[k] = v
	}
	m.SetAnnotations(annotations)
	labels := maps.Clone(m.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	labels["team"] = "red"
	m.SetLabels(labels)
	return nil
}

func (s stamp) Predict(ctx context.Context, pass registration.Pass, a admission.Attributes, o admission.ObjectInterfaces) error {
	if pass == registration.MutatingPass {
		return s.Admit(ctx, a, o)
	}
	return nil
}

// names is a built-in admission plugin that rejects a name.
type names struct{ *admission.Handler }

func (n names) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	return n.Predict(ctx, registration.ValidatingPass, a, o)
}

func (n names) Predict(_ context.Context, pass registration.Pass, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if pass == registration.ValidatingPass && a.GetName() == "forbidden" {
		return apierrors.NewForbidden(a.GetResource().GroupResource(), a.GetName(), errors.New("the name is not allowed"))
	}
	return nil
}

// current is a Snapshots whose snapshot changes from one random set to the next.
type current struct {
	atomic.Pointer[snapshot.Snapshot]
}

func (*current) Static() *snapshot.Snapshot { return nil }

func (c *current) Acquire(context.Context, snapshot.Subject) (*snapshot.Snapshot, error) {
	return c.Load(), nil
}

// prophet compares plans with actual results, one random set after the other.
type prophet struct {
	*recorder
	base      string
	ca        []byte
	prefix    string
	snapshots current
	// serial calls no mutating webhook ahead of turn, eager may.
	serial, eager *Engine
	tally         tally
}

// tally counts the results of the random sets, so that each kind of result occurs.
type tally struct {
	sets, calls, ahead, equivalent, pending, rejected, ignored int
	// evaluated and denied count policies that were evaluated, and that rejected.
	evaluated, denied int
	// mutated counts mutations that changed an object, and again counts second rounds.
	mutated, again int
}

func newProphet(t *testing.T, s *hooktest.Server, prefix string) *prophet {
	p := &prophet{recorder: &recorder{}, base: s.URL, ca: s.CA, prefix: prefix}
	for _, kind := range []string{registration.MutatingKind, registration.ValidatingKind, registration.ExternalKind} {
		for _, name := range configurations {
			for i := range maxHooks {
				s.Serve(hookPath(prefix, kind, name, i), p.ServeHTTP)
			}
		}
	}
	engine := func(serial bool) *Engine {
		e, err := New(Options{
			Snapshots: &p.snapshots, Namespaces: randomNamespaces{}, Authorizer: alice{}, Resolver: s, Serial: serial, Skips: true,
			Params: paramsOfSets, Schemas: catalogueSchemas,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(e.Close)
		return e
	}
	p.serial, p.eager = engine(true), engine(false)
	p.learn(t)
	return p
}

// learn teaches the eager engine that the mutating webhooks leave new pods unchanged, so that it
// calls them ahead of turn.
func (p *prophet) learn(t *testing.T) {
	var list []kruntime.Object
	for _, name := range configurations {
		c := &v1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for i := range maxHooks {
			url, none := p.base+"/"+hookPath(p.prefix, registration.MutatingKind, name, i), v1.SideEffectClassNone
			c.Webhooks = append(c.Webhooks, v1.MutatingWebhook{
				Name: fmt.Sprintf("h%d.example.com", i), Rules: everything, SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
				ClientConfig: v1.WebhookClientConfig{URL: &url, CABundle: p.ca},
			})
		}
		registration.Default(c)
		list = append(list, c)
	}
	p.snapshots.Store(snapshot.Compile(snapshot.Registrations{Objects: list}))
	for range 40 {
		a := admission.NewAttributesRecord(&corev1.Pod{}, nil, is("", "v1", "Pod"), "shop", "web", at("", "v1", "pods"), "",
			admission.Create, nil, false, &user.DefaultInfo{})
		if err := p.eager.MutatingWebhooks().Admit(t.Context(), a, catalogueInterfaces); err != nil {
			t.Fatal(err)
		}
	}
	p.take()
}

// chain joins the plugins in one of the orders that a host may choose.
func (p *prophet) chain(r random, e *Engine) []Plugin {
	writes := admission.NewHandler(admission.Create, admission.Update)
	mutating := []Plugin{{InitializersName, e.Initializers()}, {"Stamp", stamp{writes}}, {MutatingWebhookName, e.MutatingWebhooks()}}
	validating := []Plugin{{"Names", names{writes}}, {GenericWebhookName, e.ExternalHooks()}, {ValidatingWebhookName, e.ValidatingWebhooks()}, {ValidatingPolicyName, e.ValidatingPolicies()}}
	if r.in(2) {
		for _, list := range [][]Plugin{mutating, validating} {
			r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		}
	}
	// A plan does not predict the second round, which mutating policies may cause: no step between
	// them and the webhooks may undo their changes.
	at := slices.IndexFunc(mutating, func(p Plugin) bool { return p.Name == MutatingWebhookName })
	mutating = slices.Insert(mutating, at, Plugin{MutatingPolicyName, e.MutatingPolicies()})
	lifecycle := Plugin{NamespaceLifecycleName, NewNamespaceLifecycle(randomNamespaces{})}
	return slices.Concat([]Plugin{lifecycle}, mutating, validating)
}

// compare plans one random request with one random set, runs it, and returns the differences; empty
// if there are none.
func (p *prophet) compare(ctx context.Context, seed uint64) (string, error) {
	r := newRandom(seed)
	objects := r.registrations(p.base, p.ca, p.prefix)
	if r.in(3) {
		objects = append(objects, r.policies()...)
	}
	if r.in(3) {
		objects = append(objects, r.mutatingPolicies()...)
	}
	if r.in(3) {
		r.soften(objects)
	}
	s := snapshot.Compile(snapshot.Registrations{Objects: objects, Revision: fmt.Sprint(seed)})
	if len(s.Problems) > 0 {
		return "", errors.Join(s.Problems...)
	}
	p.snapshots.Store(s)
	a, err := r.attributes()
	if err != nil {
		return "", err
	}
	e := p.eager
	if r.in(2) {
		e = p.serial
	}
	chain := p.chain(r, e)
	had := a.GetObject() != nil && initializers.Has(a.GetObject())

	predicted, err := e.Plan(ctx, chain, a, catalogueInterfaces, PlanOptions{})
	if err != nil {
		return "", err
	}
	full, err := e.Plan(ctx, chain, a, catalogueInterfaces, PlanOptions{All: true})
	if err != nil {
		return "", err
	}
	followed := trace.New()
	joined := Chain(chain...)
	// The log contains nothing beyond the trace.
	ctx = klog.NewContext(trace.NewContext(ctx, followed), klog.Logger{})
	rejection := joined.Admit(ctx, a, catalogueInterfaces)
	if rejection == nil {
		rejection = joined.Validate(ctx, a, catalogueInterfaces)
	}
	received := p.take()

	var b strings.Builder
	differ := func(what string, want, got any) {
		if diff := gocmp.Diff(want, got, cmpopts.IgnoreUnexported(told{}), cmpopts.EquateEmpty()); diff != "" {
			fmt.Fprintf(&b, "%s (-plan +chain):\n%s", what, diff)
		}
	}
	differ("what acts, in the plan without and with what does not apply", acts(predicted.Steps), acts(full.Steps))
	if (predicted.Rejection != "") != (rejection != nil) {
		fmt.Fprintf(&b, "the plan says rejection %q, the chain says %v\n", predicted.Rejection, rejection)
	}
	differ("webhooks", outcomes(predicted.Steps), happened(followed))
	differ("policies", foretold(full.Steps), evaluated(followed))
	if text := policyDenial(predicted); text != "" && (rejection == nil || rejection.Error() != text) {
		fmt.Fprintf(&b, "the plan says rejection %q, the chain says %v\n", text, rejection)
	}
	serial := e == p.serial
	differ("the reviews that webhooks receive", p.arranged(p.calls(predicted.Steps, a), serial), p.arranged(unforeseen(followed, received), serial))
	if rejection == nil {
		// Steps after a rejection are explained, but not compared.
		differ("webhooks that do not apply", spared(full.Steps), skipped(followed))
		got, err := pending(a)
		if err != nil {
			return "", err
		}
		if had {
			got = nil
		}
		differ("initializers", pended(predicted.Steps), got)
	}
	b.WriteString(p.untraced(followed, received))
	p.count(predicted, followed, rejection)
	if b.Len() == 0 {
		return "", nil
	}
	return fmt.Sprintf("%s\n%s as %s:\n%s\nthe trace:\n%s\nthe error: %v\n", b.String(), predicted.Request.Operation, predicted.Request.User, printed(full), traceText(followed), rejection), nil
}

// policyDenial returns the rejection in a plan, if a policy is the cause.
func policyDenial(p *plan.Plan) string {
	for i := range p.Steps {
		if s := &p.Steps[i]; s.Effect == plan.Reject {
			if s.Entry != nil && (s.Entry.Kind == registration.ValidatingPolicyKind || s.Entry.Kind == registration.MutatingPolicyKind) {
				return p.Rejection
			}
			return ""
		}
	}
	return ""
}

func printed(p *plan.Plan) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%+v\n", p.Request)
	// A strings.Builder returns no error.
	_ = p.Print(&b)
	return b.String()
}

// acts returns the steps with an effect.
func acts(steps []plan.Step) []string {
	var out []string
	for i := range steps {
		if s := &steps[i]; s.Effect != plan.Skip {
			out = append(out, fmt.Sprint(s.Pass, " ", s.Plugin, " ", s.Entry, " ", s.Effect, " ", s))
		}
	}
	return out
}

// called reports whether a trace has a call for a step, with or without a review.
func called(s *plan.Step) bool {
	if s.As == nil {
		return false
	}
	switch {
	case s.Effect == plan.Call:
		return true
	case s.Reason == nil:
		return false
	}
	return slices.Contains([]string{plan.NoDryRun.String(), plan.NoSideEffects.String(), plan.NoReviewVersion.String()}, s.Reason.Code)
}

// outcomes returns the outcomes of the webhooks that are called in a plan, or fail before.
func outcomes(steps []plan.Step) []string {
	var out []string
	for i := range steps {
		if s := &steps[i]; called(s) {
			code := ""
			if s.Reason != nil {
				code = s.Reason.Code
			}
			out = append(out, fmt.Sprintf("%s %s %d %s %s", s.Plugin, s.Entry, s.Entry.Index, s.Effect, code))
		}
	}
	return out
}

// runs returns the runs of the engine's plugins.
func runs(t *trace.Trace) []*trace.Run {
	var out []*trace.Run
	for _, s := range t.Steps() {
		if s.Run != nil {
			out = append(out, s.Run)
		}
	}
	return out
}

// foreseen returns the runs of the first round, which a plan covers.
func foreseen(t *trace.Trace) []*trace.Run {
	return slices.DeleteFunc(runs(t), func(r *trace.Run) bool { return r.Round > 0 })
}

// unforeseen drops the reviews of the second round, which mutating policies cause.
func unforeseen(t *trace.Trace, received []told) []told {
	again := map[types.UID]bool{}
	for _, run := range runs(t) {
		for i := range run.Calls {
			again[run.Calls[i].UID] = run.Round > 0
		}
		for i := range run.Discarded {
			again[run.Discarded[i].UID] = run.Round > 0
		}
	}
	return slices.DeleteFunc(slices.Clone(received), func(r told) bool { return again[r.uid] })
}

// happened returns the outcomes of the webhooks in a trace.
func happened(t *trace.Trace) []string {
	var out []string
	for _, run := range foreseen(t) {
		for i := range run.Calls {
			c := &run.Calls[i]
			if c.UID == "" && c.Spared() && c.Reason == "" {
				// A webhook that is not enforced, and one of whose tests failed with an error.
				continue
			}
			effect := plan.Call
			switch {
			case c.Ignored || c.Spared():
				effect = plan.Ignored
			case c.Verdict != trace.Allowed:
				effect = plan.Reject
			}
			out = append(out, fmt.Sprintf("%s %s %d %s %s", run.Source.Descriptor().Plugin, &c.Entry, c.Entry.Index, effect, c.Reason))
		}
	}
	return out
}

// spared returns the webhooks in a plan that have a rule for the request and do not apply, with the
// reason.
func spared(steps []plan.Step) []string {
	var out []string
	for i := range steps {
		switch s := &steps[i]; {
		case s.As == nil, s.Reason == nil, len(s.Evaluations) > 0, len(s.Consequences) > 0:
		case s.Effect == plan.Skip && s.Reason.Code != plan.NotReached.String():
			out = append(out, fmt.Sprintf("%s %s: %s: %s", s.Plugin, s.Entry, s.Reason.Code, s.Reason.Message))
		case s.Effect == plan.Ignored && s.Enforcement == nil && s.Reason.Code == plan.ConditionFailed.String():
			out = append(out, fmt.Sprintf("%s %s: %s", s.Plugin, s.Entry, s.Reason.Code))
		}
	}
	return out
}

// skipped returns the same from a trace.
func skipped(t *trace.Trace) []string {
	var out []string
	for _, run := range foreseen(t) {
		for i := range run.Skips {
			s := &run.Skips[i]
			text := fmt.Sprintf("%s %s: %s", run.Source.Descriptor().Plugin, &s.Entry, s.Code)
			if s.Code != plan.ConditionFailed.String() {
				text += ": " + s.Reason
			}
			out = append(out, text)
		}
	}
	return out
}

// calls returns the reviews that webhooks will receive according to a plan.
func (p *prophet) calls(steps []plan.Step, a admission.Attributes) []told {
	var out []told
	for i := range steps {
		s := &steps[i]
		if s.Effect != plan.Call {
			continue
		}
		gv, err := schema.ParseGroupVersion(cmp.Or(s.As.ResourceAPIVersion, s.As.APIVersion))
		if err != nil {
			panic(err)
		}
		t := told{
			Path: hookPath(p.prefix, s.Entry.Kind, s.Entry.Configuration, s.Entry.Index), Review: "admission.k8s.io/" + s.ReviewVersion,
			APIVersion: s.As.APIVersion, Kind: s.As.Kind, Resource: metav1.GroupVersionResource(gv.WithResource(s.As.Resource)), Part: s.As.Subresource,
			Timeout: fmt.Sprintf("%gs", s.TimeoutSeconds),
		}
		if a.GetObject() != nil || a.GetOldObject() != nil {
			t.ObjectKind = t.APIVersion + " " + t.Kind
		}
		out = append(out, t)
	}
	return out
}

// arranged sorts elements without an order: webhooks that are called concurrently.
func (p *prophet) arranged(list []told, serial bool) []told {
	source := func(t *told) string {
		kind, _, _ := strings.Cut(strings.TrimPrefix(t.Path, p.prefix+"/"), "/")
		return kind
	}
	for start := 0; start < len(list); {
		end := start
		for end < len(list) && source(&list[end]) == source(&list[start]) {
			end++
		}
		if !serial || source(&list[start]) != registration.MutatingKind {
			slices.SortFunc(list[start:end], func(a, b told) int { return cmp.Compare(a.Path, b.Path) })
		}
		start = end
	}
	return list
}

// review identifies one review by webhook and uid. Reviews of v1alpha1 have no uid.
type review struct {
	path string
	uid  types.UID
}

// untraced compares the reviews that webhooks received with the reviews in the trace, and returns
// the differences.
func (p *prophet) untraced(t *trace.Trace, received []told) string {
	var b strings.Builder
	known := map[review]int{}
	answered := map[review]bool{}
	for _, run := range runs(t) {
		for _, calls := range [][]trace.Call{run.Calls, run.Discarded} {
			for i := range calls {
				c := &calls[i]
				if c.UID == "" {
					continue
				}
				r := review{hookPath(p.prefix, c.Entry.Source.String(), c.Entry.Configuration, c.Entry.Index), c.UID}
				if c.Entry.Source == registration.External {
					r.uid = ""
				}
				known[r]++
				answered[r] = answered[r] || c.Verdict == trace.Allowed
			}
		}
	}
	for i := range received {
		r := review{received[i].Path, received[i].uid}
		if known[r] != 1 {
			fmt.Fprintf(&b, "review %s of %s was received once and is in the trace %d times\n", r.uid, r.path, known[r])
		}
		delete(answered, r)
	}
	for r, allowed := range answered {
		if allowed {
			fmt.Fprintf(&b, "the trace says that %s allowed review %s, which it never received\n", r.path, r.uid)
		}
	}
	return b.String()
}

// pended returns the initializers of the object in a plan.
func pended(steps []plan.Step) []string {
	var out []string
	for i := range steps {
		if steps[i].Effect == plan.Pend {
			out = append(out, steps[i].Entry.Name)
		}
	}
	return out
}

// pending returns the initializers of the object.
func pending(a admission.Attributes) ([]string, error) {
	if a.GetObject() == nil {
		return nil, nil
	}
	list, err := initializers.Get(a.GetObject())
	if err != nil || list == nil {
		return nil, err
	}
	var out []string
	for _, i := range list.Pending {
		out = append(out, i.Name)
	}
	return out, nil
}

func (p *prophet) count(predicted *plan.Plan, t *trace.Trace, rejection error) {
	n := &p.tally
	n.sets++
	if rejection != nil {
		n.rejected++
	}
	for i := range predicted.Steps {
		switch s := &predicted.Steps[i]; s.Effect {
		case plan.Call:
			n.calls++
			if s.As.Equivalent {
				n.equivalent++
			}
		case plan.Pend:
			n.pending++
		case plan.Ignored:
			n.ignored++
		}
	}
	n.evaluated += len(foretold(predicted.Steps))
	if policyDenial(predicted) != "" {
		n.denied++
	}
	for _, run := range runs(t) {
		if run.Round > 0 && run.Source == registration.MutatingPolicies {
			n.again++
		}
		for i := range run.Judgements {
			for k := range run.Judgements[i].Evaluations {
				if run.Judgements[i].Evaluations[k].Mutated() {
					n.mutated++
				}
			}
		}
		for i := range run.Calls {
			if run.Calls[i].Turn == trace.Ahead {
				n.ahead++
			}
		}
	}
}

// For all registrations and requests, the plan of a request has the webhooks that will be called
// with the content of the reviews, the initializers of the object, and the rejection of the request
// unless a webhook causes it; and every review that a webhook received is in the trace of the
// request, once. The webhooks here allow everything and change nothing: no plan can know their
// answers.
func TestPlanIsWhatHappens(t *testing.T) {
	s, sets := hooktest.New(t), *propertySets
	if sets == 0 {
		sets = uint64(speed.Of(someSets, randomSets))
	}
	workers := min(runtime.GOMAXPROCS(0), 4)
	prophets := make([]*prophet, workers)
	for i := range prophets {
		prophets[i] = newProphet(t, s, fmt.Sprint(i))
	}
	var failed atomic.Int32
	check := func(p *prophet, seed uint64) {
		different, err := p.compare(t.Context(), seed)
		if err != nil {
			t.Errorf("-seed %d: %v", seed, err)
			failed.Add(1)
		} else if different != "" {
			t.Errorf("-seed %d:\n%s", seed, different)
			failed.Add(1)
		}
	}
	if *propertySeed != 0 {
		check(prophets[0], *propertySeed)
		return
	}
	start := time.Now()
	var next atomic.Uint64
	var all sync.WaitGroup
	for _, p := range prophets {
		all.Go(func() {
			// A few counterexamples are enough.
			for failed.Load() < 5 {
				seed := next.Add(1)
				if seed > sets {
					return
				}
				check(p, seed)
			}
		})
	}
	all.Wait()
	var sum tally
	for _, p := range prophets {
		n := &p.tally
		sum = tally{
			sum.sets + n.sets, sum.calls + n.calls, sum.ahead + n.ahead, sum.equivalent + n.equivalent,
			sum.pending + n.pending, sum.rejected + n.rejected, sum.ignored + n.ignored,
			sum.evaluated + n.evaluated, sum.denied + n.denied, sum.mutated + n.mutated, sum.again + n.again,
		}
	}
	t.Logf("%+v in %v", sum, time.Since(start).Round(time.Millisecond))
	if sets >= 10000 && !t.Failed() && (sum.ahead == 0 || sum.equivalent == 0 || sum.pending == 0 || sum.rejected == 0 || sum.ignored == 0 || sum.calls < sum.sets || sum.evaluated == 0 || sum.denied == 0 || sum.mutated == 0 || sum.again == 0) {
		t.Errorf("the random sets leave something out: %+v", sum)
	}
}
