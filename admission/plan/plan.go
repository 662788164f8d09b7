package plan

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/engine/exclusion"
	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
)

// Link describes one plugin of a chain for a plan.
type Link struct {
	// Plugin is the name of the plugin.
	Plugin string
	// Source is the source of the plugin's entries; nil for a built-in admission plugin.
	Source *registration.Descriptor
	// Mutates and Validates report in which passes a built-in admission plugin takes part.
	Mutates, Validates bool
	// Changes reports whether a built-in admission plugin may change the object, and
	// DependsOnOthers whether its verdict depends on changes by other plugins.
	Changes, DependsOnOthers bool
	// Certain reports whether the verdict depends on no part of the object that other plugins may
	// change.
	Certain bool
	// GoesOn reports whether the plan continues after a rejection, as if there were none. Even if
	// the user may not make the request, readers want to see how admission would handle it.
	GoesOn bool
	// Judge returns the error with which the plugin itself would reject the request; nil if it
	// would not. patch is its change of the object as a JSON patch, if that is known. Judge has no
	// effect, except on the object in the mutating pass. A nil Judge means that the plugin has no
	// verdict of its own, or that it is not predicted.
	Judge func(ctx context.Context, pass registration.Pass) (patch []byte, err error)
	// Hidden, if set, is the reason why the entries of Source, or the objects read by a built-in
	// admission plugin, cannot be seen: "may not list mutatingwebhookconfigurations". The plan then
	// contains the reason instead of the entries.
	Hidden string
}

// Acting returns the link of the plugin for a source. hidden has the sources whose entries the
// caller may not see, each with the reason.
func Acting(source registration.Source, hidden map[registration.Source]string) Link {
	d := source.Descriptor()
	l := Link{Plugin: d.Plugin, Source: d, Hidden: hidden[source]}
	if d.Policies && l.Hidden == "" {
		// The effect of a policy depends on its bindings.
		l.Hidden = hidden[d.Bindings]
	}
	return l
}

// Plan describes the admission of one request: every step of both passes, in the order of the
// chain. It is plain data, and its JSON form is stable: fields are added, never changed or removed.
//
// A plan cannot predict the answers of webhooks. If a webhook changes the object, later entries
// that did not apply may apply, and the reverse; and the mutating pass may run once more (S5.16).
type Plan struct {
	// Request describes the request.
	Request About `json:"request"`
	// Revision is the storage revision of the registrations.
	Revision string `json:"revision,omitempty"`
	// Steps are the entries that apply, in order. If the plan was requested with all entries, it
	// also has the entries that do not apply, in their positions.
	Steps []Step `json:"steps"`
	// Rejection is the message of a rejection that happens before any webhook is called for a
	// verdict; empty if only webhooks can reject the request.
	Rejection string `json:"rejection,omitempty"`
	// Likely is the message of the rejection that happens unless a step that cannot be predicted
	// changes the object; empty if there is none.
	Likely string `json:"likely,omitempty"`
	// Causes are all predicted rejections, in order: Rejection, Likely, and the rejections that
	// would follow if the previous cause were fixed.
	Causes []string `json:"causes,omitempty"`
	// WorstCaseSeconds is the maximum time for all webhooks and initializers, if each one takes its
	// whole timeout: webhooks run one after the other in the mutating pass, the webhooks of a
	// plugin run at the same time in the validating pass, and initializers run in turns. The
	// timeout of the request limits it.
	WorstCaseSeconds float64 `json:"worstCaseSeconds"`
	// Notes list, in sentences, the unknown facts and the assumptions of the plan. The caller of
	// New adds them; New adds none.
	Notes []string `json:"notes,omitempty"`
}

// About describes a request without its objects.
type About struct {
	// Operation is CREATE, UPDATE, DELETE or CONNECT.
	Operation string `json:"operation"`
	// APIVersion is the group and version of the resource.
	APIVersion string `json:"apiVersion"`
	// Kind is the kind of the object.
	Kind string `json:"kind"`
	// Resource is the resource of the URL, Subresource its subresource.
	Resource    string `json:"resource"`
	Subresource string `json:"subresource,omitempty"`
	// Namespace and Name identify the object.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	// User is the name of the user that makes the request.
	User string `json:"user,omitempty"`
	// DryRun reports whether the request is a dry run, which stores no object.
	DryRun bool `json:"dryRun,omitempty"`
}

// About returns a description of the request.
func (r *Request) About() About {
	a := About{
		Operation: string(r.Operation), APIVersion: r.Resource.GroupVersion().String(), Kind: r.Kind.Kind,
		Resource: r.Resource.Resource, Subresource: r.Subresource, Namespace: r.Namespace, Name: r.Name, DryRun: r.DryRun,
	}
	if r.User != nil {
		a.User = r.User.GetName()
	}
	return a
}

// Effect is the effect of a step.
type Effect string

const (
	// Call: the webhook is called.
	Call Effect = "call"
	// Evaluate: the policy is evaluated, and does not reject the request.
	Evaluate Effect = "evaluate"
	// Pend: the initializer's name is added to the object.
	Pend Effect = "pend"
	// Run: the built-in admission plugin takes part.
	Run Effect = "run"
	// Reject: the request is rejected here.
	Reject Effect = "reject"
	// Ignored: the entry fails, and its failure policy is Ignore, or it is not enforced.
	Ignored Effect = "ignore"
	// Skip: the entry does not apply.
	Skip Effect = "skip"
	// Undecided: the plan cannot determine whether the entry applies.
	Undecided Effect = "unknown"
)

// Step is one step of the admission of a request, or a step that does not apply.
type Step struct {
	// Pass is mutating or validating, Plugin the admission plugin whose step it is, or
	// ValidationName.
	Pass   string `json:"pass"`
	Plugin string `json:"plugin"`
	// Entry is the webhook, policy or initializer; nil for a built-in admission plugin.
	Entry *Entry `json:"entry,omitempty"`
	// Effect is the effect of the step: call, evaluate, pend, run, reject, ignore, skip or unknown.
	Effect Effect `json:"effect"`
	// Rule is the index of the rule that matched, and As the group, version, kind and resource in
	// the review; nil if no rule matched.
	Rule *int `json:"rule,omitempty"`
	As   *As  `json:"as,omitempty"`
	// ReviewVersion is the version of the AdmissionReview that is sent.
	ReviewVersion string `json:"reviewVersion,omitempty"`
	// FailurePolicy is Fail or Ignore, and TimeoutSeconds the timeout of one call.
	FailurePolicy  string  `json:"failurePolicy,omitempty"`
	TimeoutSeconds float64 `json:"timeoutSeconds,omitempty"`
	// Evaluations are the evaluations of a policy, one for each param. Consequences are the effects
	// of their violations and errors, in order of precedence. Bindings are the bindings that do not
	// apply, if the plan was requested with all entries.
	Evaluations  []PolicyEvaluation  `json:"evaluations,omitempty"`
	Consequences []PolicyConsequence `json:"consequences,omitempty"`
	Bindings     []SkippedBinding    `json:"bindings,omitempty"`
	// MayGoAhead reports whether the webhook may be called before its turn, MayReinvoke whether
	// the webhook may be called, or the policy evaluated, a second time.
	MayGoAhead  bool `json:"mayGoAhead,omitempty"`
	MayReinvoke bool `json:"mayReinvoke,omitempty"`
	// Order explains the position of the step: the order that the entry and other entries request,
	// and the part of it that is not granted. It is empty if only names determine the order.
	Order []string `json:"order,omitempty"`
	// Reason is the reason why the step does not have its normal effect; nil if it has.
	Reason *Explanation `json:"reason,omitempty"`
	// Exclusions are the administrator's exclusion rules that affect the step (S23).
	Exclusions []AppliedExclusion `json:"exclusions,omitempty"`
	// Enforcement is present if the webhook is not enforced: the request continues as if the
	// webhook did not exist (S28).
	Enforcement *Enforced `json:"enforcement,omitempty"`
	// Location is the position of the rule in the file, or of the entry if no rule matched, for
	// registrations from files.
	Location *Location `json:"location,omitempty"`
	// Patch is the change that a built-in admission plugin makes to the object, as a JSON patch.
	Patch json.RawMessage `json:"patch,omitempty"`
	// Notes are further facts about the step. The caller of New adds them.
	Notes []string `json:"notes,omitempty"`
}

// Names in place of a plugin name for rejections by the server itself: it does not serve the kind,
// the user is not authorized, the object has unknown fields, the object is not valid, or its name
// is taken.
const (
	DiscoveryName     = "Discovery"
	AuthorizationName = "Authorization"
	DecodingName      = "Decoding"
	ValidationName    = "Validation"
	StorageName       = "Storage"
)

// Verdict is the outcome of a request in a plan.
type Verdict string

const (
	// VerdictAccepted: nothing rejects the request.
	VerdictAccepted Verdict = "accepted"
	// VerdictRejected: the request is rejected.
	VerdictRejected Verdict = "rejected"
	// VerdictLikely: the request is rejected, unless a step that cannot be predicted changes the
	// object.
	VerdictLikely Verdict = "likely rejected"
	// VerdictWebhooks: only webhooks can reject the request.
	VerdictWebhooks Verdict = "up to webhooks"
	// VerdictUnknown: a step that cannot be predicted may reject the request.
	VerdictUnknown Verdict = "unknown"
)

// Verdict returns the outcome of the request.
func (p *Plan) Verdict() Verdict {
	has := func(effect Effect) bool {
		return slices.ContainsFunc(p.Steps, func(s Step) bool { return s.Effect == effect })
	}
	switch {
	case p.Rejection != "":
		return VerdictRejected
	case p.Likely != "":
		return VerdictLikely
	case has(Undecided):
		return VerdictUnknown
	case slices.ContainsFunc(p.Steps, func(s Step) bool { return s.Effect == Call && s.Enforcement == nil }):
		return VerdictWebhooks
	}
	return VerdictAccepted
}

// Each yields all steps.
func (p *Plan) Each() iter.Seq[*Step] { return p.only(func(*Step) bool { return true }) }

// Acting yields the steps of webhooks, policies and initializers that apply, or may apply.
func (p *Plan) Acting() iter.Seq[*Step] {
	return p.only(func(s *Step) bool { return s.Entry != nil && s.Effect != Skip })
}

// Calls yields the steps in which a webhook is called.
func (p *Plan) Calls() iter.Seq[*Step] { return p.only(func(s *Step) bool { return s.Effect == Call }) }

// only yields the steps for which wanted returns true.
func (p *Plan) only(wanted func(*Step) bool) iter.Seq[*Step] {
	return func(yield func(*Step) bool) {
		for i := range p.Steps {
			if s := &p.Steps[i]; wanted(s) && !yield(s) {
				return
			}
		}
	}
}

// Unseen returns the distinct reasons why steps are unknown, such as "may not list
// priorityclasses".
func (p *Plan) Unseen() (list []string) {
	for s := range p.only(func(s *Step) bool { return s.Effect == Undecided && s.Reason != nil }) {
		why := strings.TrimPrefix(s.Reason.Message, unknown)
		if !slices.Contains(list, why) && !slices.Contains(p.Causes, why) {
			list = append(list, why)
		}
	}
	return list
}

// unknown begins the reason of a step that is unknown.
const unknown = "unknown: "

// UpToMutation reports whether a mutating webhook is called. It may change the object, and so the
// verdict of later steps.
func (p *Plan) UpToMutation() bool {
	if p.RejectedBy() == StorageName {
		return false
	}
	for s := range p.Calls() {
		if s.Pass == registration.MutatingPass.String() {
			return true
		}
	}
	return false
}

// RejectedBy returns the name of the plugin or entry that rejects the request; empty if none does.
func (p *Plan) RejectedBy() string {
	i := slices.IndexFunc(p.Steps, func(s Step) bool { return s.Effect == Reject })
	switch {
	case p.Rejection == "" || i < 0:
		return ""
	case p.Steps[i].Entry != nil:
		return p.Steps[i].Entry.String()
	}
	return p.Steps[i].Plugin
}

// AppliedExclusion is an exclusion rule that has an effect.
type AppliedExclusion struct {
	// Rule is its name, Effect is skip, ignoreFailures or capTimeout.
	Rule   string `json:"rule"`
	Effect string `json:"effect"`
	// TimeoutSeconds is the maximum duration of a call with the effect capTimeout.
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`
}

// exclusions returns the rules that have an effect on a candidate.
func (c *Candidate) exclusions() []AppliedExclusion {
	var list []AppliedExclusion
	if x := c.Exclusion; x != nil {
		for _, rule := range []*exclusion.Rule{x.Skip, x.IgnoreFailures, x.CapTimeout} {
			if rule != nil {
				list = append(list, AppliedExclusion{rule.Name, string(rule.Effect), rule.TimeoutSeconds})
			}
		}
	}
	return list
}

// Location is a place in a file.
type Location struct {
	// File is the path of the file.
	File string `json:"file"`
	// Line counts from 1. Field is the path of the field in its object.
	Line  int    `json:"line"`
	Field string `json:"field"`
}

// String returns the place as compilers print it: FILE:LINE: FIELD.
func (l *Location) String() string { return fmt.Sprintf("%s:%d: %s", l.File, l.Line, l.Field) }

// Entry names a webhook, a policy or an initializer.
type Entry struct {
	// Kind is the kind of the object that registers it, Configuration the object's name.
	Kind          string `json:"kind"`
	Configuration string `json:"configuration"`
	// Index is its position in the object, from 0, and Name its own name; empty if the object
	// itself is the entry, as for a policy.
	Index int    `json:"index"`
	Name  string `json:"name"`
	// Source is static for an entry of a manifest file, and absent for one of the API.
	Source string `json:"source,omitempty"`
}

// String returns the entry as messages name it: CONFIGURATION/NAME, or the object's name if the
// object is the entry.
func (e *Entry) String() string {
	if e.Name == "" {
		return e.Configuration
	}
	return e.Configuration + "/" + e.Name
}

// As is the group, version, kind and resource that a review gives for a request.
type As struct {
	// APIVersion and Kind are the API version and kind of the objects in the review.
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Resource is the resource of the review, Subresource its subresource.
	Resource    string `json:"resource"`
	Subresource string `json:"subresource,omitempty"`
	// ResourceAPIVersion is the group and version of the resource, if they differ from the group
	// and version of the kind, as for the subresource scale.
	ResourceAPIVersion string `json:"resourceAPIVersion,omitempty"`
	// Equivalent reports whether the group or version differs from the request's own, so that the
	// objects are converted (S2.24).
	Equivalent bool `json:"equivalent,omitempty"`
}

// Explanation is a Reason as plain data.
type Explanation struct {
	// Code names the test, for programs; Message is a sentence for people.
	Code    string `json:"code"`
	Message string `json:"message"`
}

// New returns the plan of a request that goes through a chain. With all, the plan also has the
// entries that do not apply, each with the reason. New uses the functions that running requests
// use, and calls no webhook; I/O happens only in the functions of the Input and the links. New
// applies the predictable changes to in.Objects: the initializers of a new object, the changes of a
// Judge and of in.Prepare, and, if in.Generates, a name in place of the generated one.
func New(ctx context.Context, chain []Link, s *snapshot.Snapshot, r *Request, e Equivalents, in *Input, all bool) *Plan {
	b := &builder{
		ctx: ctx, snapshot: s, request: r, equivalents: e, input: in, all: all,
		plan: &Plan{Request: r.About(), Revision: s.Revision, Steps: []Step{}},
	}
	for _, pass := range []registration.Pass{registration.MutatingPass, registration.ValidatingPass} {
		if pass == registration.ValidatingPass {
			b.generate()
			b.prepare()
		}
		for i := range chain {
			b.link(pass, &chain[i])
		}
	}
	b.plan.WorstCaseSeconds = b.worst.Seconds()
	b.withoutCredentials()
	return b.plan
}

// builder builds one plan.
type builder struct {
	ctx         context.Context
	snapshot    *snapshot.Snapshot
	request     *Request
	equivalents Equivalents
	input       *Input
	all         bool
	plan        *Plan
	// constraints are the order constraints of the entries of a source; order sets them.
	constraints map[registration.Source][]registration.Constraint
	// unseen are built-in admission plugins, and unlisted plugins for webhooks, policies or
	// initializers, that may have changed the object in a way that the plan cannot predict.
	unseen, unlisted []string
	// over is set once the request is rejected.
	over  bool
	worst time.Duration
}

func (b *builder) link(pass registration.Pass, l *Link) {
	switch {
	case l.Source == nil:
		if pass == registration.MutatingPass && l.Mutates || pass == registration.ValidatingPass && l.Validates {
			b.compiled(pass, l)
		}
	case l.Source.Pass != pass:
		b.judge(pass, l)
	case l.Hidden != "":
		b.hidden(pass, l)
		if pass == registration.MutatingPass && l.Source.Source != registration.Initializing {
			b.unlisted = append(b.unlisted, l.Plugin)
		}
	case l.Source.Source == registration.Initializing:
		b.initializers(l)
	case l.Source.Policies:
		b.policies(l)
	case pass == registration.MutatingPass:
		b.serial(l)
	default:
		b.parallel(l)
	}
}

// compiled adds the step of a built-in admission plugin.
func (b *builder) compiled(pass registration.Pass, l *Link) {
	switch {
	case b.over:
	case l.Hidden != "":
		b.hidden(pass, l)
		if l.Changes {
			b.unseen = append(b.unseen, l.Plugin)
		}
	default:
		before := len(b.plan.Steps)
		if patch := b.judge(pass, l); len(b.plan.Steps) == before {
			b.plan.Steps = append(b.plan.Steps, Step{Pass: pass.String(), Plugin: l.Plugin, Effect: Run, Patch: patch})
		}
	}
}

// hidden adds a step for a plugin whose entries, or whose resources, the caller may not see.
func (b *builder) hidden(pass registration.Pass, l *Link) {
	b.plan.Steps = append(b.plan.Steps, Step{
		Pass: pass.String(), Plugin: l.Plugin, Effect: Undecided,
		Reason: &Explanation{Code: Unknown.String(), Message: unknown + l.Hidden},
	})
}

// judge adds a step if the plugin itself rejects the request, and returns the plugin's patch.
func (b *builder) judge(pass registration.Pass, l *Link) []byte {
	if b.over || l.Judge == nil {
		return nil
	}
	patch, err := l.Judge(b.ctx, pass)
	if pass == registration.MutatingPass {
		b.input.Objects.Changed()
	}
	if why := b.unsure(l.DependsOnOthers); err != nil && why != "" && !l.Certain {
		unsure := *l
		unsure.Hidden = b.likely(oneLine(err) + why)
		b.hidden(pass, &unsure)
		return nil
	}
	if err != nil {
		b.plan.Steps = append(b.plan.Steps, Step{
			Pass: pass.String(), Plugin: l.Plugin, Effect: Reject,
			Reason: &Explanation{Code: Rejected.String(), Message: oneLine(err)},
		})
		if b.reject(err.Error()); l.GoesOn {
			b.over = false
		}
	}
	return patch
}

// unsure returns the reason why a predicted rejection is not certain; empty if it is certain.
// Changes by built-in admission plugins matter only to policies, and to plugins that depend on
// others.
func (b *builder) unsure(dependsOnOthers bool) string {
	var list []string
	add := func(names []string) {
		for _, name := range names {
			if !slices.Contains(list, name) {
				list = append(list, name)
			}
		}
	}
	if dependsOnOthers {
		add(b.unseen)
	}
	add(b.unlisted)
	if len(list) == 0 {
		return ""
	}
	return ", unless " + strings.Join(list, " or ") + " changes the object"
}

// likely records a rejection that is not certain; the first one counts. It returns the text.
func (b *builder) likely(text string) string {
	b.plan.Likely = cmp.Or(b.plan.Likely, text)
	b.plan.Causes = append(b.plan.Causes, text)
	return text
}

// reject records the rejection of the request; the first rejection counts.
func (b *builder) reject(message string) {
	if !b.over {
		b.over, b.plan.Rejection = true, cmp.Or(b.plan.Rejection, message)
		b.plan.Causes = append(b.plan.Causes, message)
	}
}

// initializers adds the initializers of a new object.
func (b *builder) initializers(l *Link) {
	object := b.input.Objects.Newest()
	why := notInitialized(b.request, object)
	// An empty list is kept, too: the plugin removes it, and adds nothing (S11.17).
	sent := object != nil && initializers.Has(object)
	b.judge(l.Source.Pass, l)
	var chosen []Candidate
	switch {
	case why != None:
	case sent:
		why = ListSent
	default:
		chosen = Initializers(b.snapshot, b.request, object)
	}
	if len(chosen) > 0 && chosen[0].Exclusion.Skips() && !b.over {
		// A rule excludes all initializers.
		for i := range chosen {
			b.decided(l, &chosen[i], &Decision{Reason: Reason{Code: ExclusionRule, entry: chosen[i].Entry, rule: chosen[i].Exclusion.Skip}})
		}
		return
	}
	if b.over {
		why, chosen = NotReached, nil
	}
	given := make([]*registration.Entry, len(chosen))
	for i := range chosen {
		given[i] = chosen[i].Entry.Entry
		step := b.step(l, &chosen[i])
		step.Effect = Pend
		b.plan.Steps = append(b.plan.Steps, step)
	}
	if len(given) > initializers.MaxPending {
		b.reject(fmt.Sprintf("%d registered initializers apply, more than the limit of %d", len(given), initializers.MaxPending))
	} else if len(given) > 0 {
		b.input.Objects.Pend(given)
		b.worst += time.Duration(turns(given)) * cmp.Or(b.input.InitializerTimeout, defaultInitializerTimeout)
	}
	if !b.all {
		return
	}
	matching := Candidates(b.snapshot, registration.Initializing, b.request, nil)
	for _, e := range b.snapshot.Entries(registration.Initializing) {
		if among(chosen, e) {
			continue
		}
		reason := Reason{Code: why, entry: e, request: b.request}
		if why == None {
			if reason.Code = SameName; !among(matching, e) {
				reason.Code = NoRule
			}
		}
		b.skip(l, e, reason)
	}
}

// defaultInitializerTimeout is the timeout of an initializer, unless the Input sets another one
// (S11.44).
const defaultInitializerTimeout = 5 * time.Second

// turns returns the number of turns of the initializers: adjacent parallel initializers share a
// turn (S11.42).
func turns(given []*registration.Entry) int {
	n := 0
	for i, e := range given {
		if i == 0 || !e.Initializer.Parallel || !given[i-1].Initializer.Parallel {
			n++
		}
	}
	return n
}

// among reports whether an entry is in a list of candidates.
func among(list []Candidate, e *snapshot.Entry) bool {
	return slices.ContainsFunc(list, func(c Candidate) bool { return c.Entry == e })
}

// serial adds the webhooks of a plugin that calls them one after the other: the first rejection
// ends it (S5.13).
func (b *builder) serial(l *Link) {
	b.eachEntry(l, func(c *Candidate, d *Decision) {
		step := b.decided(l, c, d)
		switch step.Effect {
		case Call:
			b.worst += c.Timeout()
		case Reject:
			b.reject(step.Reason.Message)
		}
	})
}

// parallel adds the webhooks of a plugin that first decides which of them apply, and then calls
// these at the same time (S6.1, S6.3).
func (b *builder) parallel(l *Link) {
	var (
		chosen    []Entry
		longest   time.Duration
		rejection string
	)
	first := len(b.plan.Steps)
	b.eachEntry(l, func(c *Candidate, d *Decision) {
		step := b.decided(l, c, d)
		switch {
		case d.Err != nil:
			// A test failed with an error. No webhook of the plugin is called, and later webhooks
			// are not considered.
			b.reject(step.Reason.Message)
			return
		case d.Applies:
			chosen = append(chosen, *step.Entry)
		}
		switch {
		case step.Effect == Call:
			longest = max(longest, c.Timeout())
		case step.Effect == Reject && rejection == "":
			rejection = step.Reason.Message
		}
	})
	if b.over {
		b.withdraw(first, chosen)
		return
	}
	b.worst += longest
	if rejection != "" {
		b.reject(rejection)
	}
}

// withdraw removes the steps of the chosen entries from the steps at first and later.
func (b *builder) withdraw(first int, chosen []Entry) {
	kept := b.plan.Steps[:first]
	for _, step := range b.plan.Steps[first:] {
		if slices.Contains(chosen, *step.Entry) {
			if !b.all {
				continue
			}
			reason := Reason{Code: NotReached}
			step.Effect, step.Reason = Skip, &Explanation{Code: reason.Code.String(), Message: reason.String()}
		}
		kept = append(kept, step)
	}
	b.plan.Steps = kept
}

// eachEntry calls f in order for every entry of a plugin that has a rule for the request, with the
// decision about it. If b.all is set, each also adds the other entries. Once the request is
// rejected, later entries are not reached.
func (b *builder) eachEntry(l *Link, f func(*Candidate, *Decision)) {
	candidates := Candidates(b.snapshot, l.Source.Source, b.request, b.equivalents)
	if !b.all {
		for i := range candidates {
			if b.over {
				return
			}
			d := candidates[i].Decide(b.ctx, b.request, b.input)
			f(&candidates[i], &d)
		}
		return
	}
	b.inOrder(l, candidates, func(i int) {
		c := &candidates[i]
		d := c.Decide(b.ctx, b.request, b.input)
		if b.over && (d.Applies || d.Unknown || d.Err != nil || d.Forgiven != nil || d.Spared != nil) {
			d = Decision{Reason: Reason{Code: NotReached}}
		}
		f(c, &d)
	})
}

// inOrder calls f with the index of each candidate, and adds the other entries of a plugin in their
// places, with the reason.
func (b *builder) inOrder(l *Link, candidates []Candidate, f func(i int)) {
	no := Reason{Code: NoRule, request: b.request}
	reach := ReachOf(l.Source.Source, b.request.Kind, b.request.Resource.GroupResource(), b.request.Reviews)
	if reach != Nothing && b.equivalents != nil {
		no.others = b.equivalents.EquivalentResourcesFor(b.request.Resource, b.request.Subresource)
	}
	target := targetOf(b.request)
	next := 0
	for _, e := range b.snapshot.Entries(l.Source.Source) {
		if next < len(candidates) && candidates[next].Entry == e {
			f(next)
			next++
			continue
		}
		reason := no
		reason.entry = e
		switch {
		case reach == Nothing || reach == Manifests && !e.Static():
			reason.Code = NotAsked
		case e.Entry.Policy != nil && e.Bindings == nil:
			reason.Code = NoBinding
		case excluded(e, b.request, &target, no.others, b.equivalents):
			reason.Code = Excluded
		}
		b.skip(l, e, reason)
	}
}

// decided adds the step of a candidate with its decision, and returns it.
func (b *builder) decided(l *Link, c *Candidate, d *Decision) *Step {
	step := b.step(l, c)
	step.Enforcement = d.Enforced.applied()
	reason := d.Reason
	switch {
	case d.Unknown:
		step.Effect = Undecided
	case d.Err != nil:
		step.Effect = Reject
	case d.Forgiven != nil || d.Spared != nil:
		step.Effect = Ignored
	case !d.Applies:
		step.Effect = Skip
	default:
		reason = b.effect(&step, c, d)
	}
	if reason.Code != None {
		message := reason.String()
		switch {
		case d.Spared != nil:
			message = oneLine(d.Spared)
		case d.Err != nil && !d.Unknown:
			message = oneLine(d.Err)
		}
		step.Reason = &Explanation{Code: reason.Code.String(), Message: message}
	}
	if step.Effect == Skip && !b.all && reason.Code != ExclusionRule {
		return &step
	}
	b.plan.Steps = append(b.plan.Steps, step)
	return &step
}

// effect sets the effect of a step whose webhook applies, and returns the reason if the effect is
// not Call. Objects are converted first, as for a call.
func (b *builder) effect(step *Step, c *Candidate, d *Decision) Reason {
	if _, _, err := b.input.Objects.Seen(c.Kind); err != nil && !errors.Is(err, ErrUnknown) {
		soft := d.Enforced.Mode.Soft()
		*d = failed(Reason{Code: NotConvertible, entry: c.Entry}, err)
		if step.Effect = Reject; soft {
			d.Spared, d.Err, step.Effect = d.Err, nil, Ignored
		}
		return d.Reason
	}
	// If the objects cannot be converted here, the content of the review is unknown.
	var reason Reason
	if step.Effect, reason = c.Outcome(b.request); step.Effect == Reject && d.Enforced.Mode.Soft() {
		step.Effect = Ignored
	}
	return reason
}

// skip adds the step of an entry that does not apply.
func (b *builder) skip(l *Link, e *snapshot.Entry, reason Reason) {
	b.plan.Steps = append(b.plan.Steps, Step{
		Pass: l.Source.Pass.String(), Plugin: l.Plugin, Entry: entryOf(e), Effect: Skip,
		FailurePolicy: string(e.FailurePolicy),
		Reason:        &Explanation{Code: reason.Code.String(), Message: reason.String()},
	})
}

// step describes a candidate.
func (b *builder) step(l *Link, c *Candidate) Step {
	step := Step{
		Pass: l.Source.Pass.String(), Plugin: l.Plugin, Entry: entryOf(c.Entry), Rule: &c.Rule,
		FailurePolicy: string(c.Entry.FailurePolicy), Exclusions: c.exclusions(),
	}
	if c.Entry.Webhook != nil || c.Entry.Entry.Policy != nil {
		step.As = &As{
			APIVersion: c.Resource.GroupVersion().String(), Kind: c.Kind.Kind, Resource: c.Resource.Resource,
			Subresource: c.Subresource, Equivalent: c.Equivalent,
		}
		if own := step.As.APIVersion; !c.Kind.Empty() && own != c.Kind.GroupVersion().String() {
			step.As.APIVersion, step.As.ResourceAPIVersion = c.Kind.GroupVersion().String(), own
		}
	}
	step.Order = b.order(c.Entry)
	if p := c.Entry.Entry.Policy; p != nil {
		step.MayReinvoke = p.Reinvoked
	}
	if w := c.Entry.Webhook; w != nil {
		version, _ := c.ReviewVersion()
		step.ReviewVersion, step.TimeoutSeconds = string(version), c.Timeout().Seconds()
		step.MayGoAhead, step.MayReinvoke = c.MayGoAhead(), w.MayReinvoke
	}
	return step
}

// order returns descriptions of the order constraints between an entry and others of its source
// (S5.31).
func (b *builder) order(e *snapshot.Entry) []string {
	constraints, known := b.constraints[e.Source]
	if !known {
		if b.constraints == nil {
			b.constraints = map[registration.Source][]registration.Constraint{}
		}
		constraints = b.snapshot.Constraints(e.Source)
		b.constraints[e.Source] = constraints
	}
	var list []string
	for _, c := range constraints {
		if !c.Concerns(e.Entry) || c.By.Static() != e.Static() {
			continue
		}
		text := c.String()
		if !c.Granted() {
			text += ", not granted because it contradicts another wish"
		}
		if e.Source != registration.Initializing {
			text += "; a kube-apiserver ignores this"
		}
		list = append(list, text)
	}
	return list
}

func entryOf(e *snapshot.Entry) *Entry {
	out := &Entry{Kind: e.Source.Descriptor().Kind, Configuration: e.Configuration, Index: e.Index, Name: e.Name}
	if e.Static() {
		out.Source = "static"
	}
	return out
}

// Complete replaces the object of AsWritten by a copy with changed metadata.
func (w *written) Complete(change func(metav1.Object)) {
	if w.object == nil {
		return
	}
	w.object = w.object.DeepCopyObject()
	if m, err := meta.Accessor(w.object); err == nil {
		change(m)
	}
}

// Pend replaces the object of AsWritten by a copy with the initializers.
func (w *written) Pend(given []*registration.Entry) {
	if w.object == nil {
		return
	}
	w.object = w.object.DeepCopyObject()
	initializers.Give(w.object, given)
}

// String describes the review and the rule that caused it: "as apps/v1 Deployment: rule 2, through
// an equivalent resource".
func (s *Step) String() string {
	switch {
	case s.Rule == nil:
		return ""
	case s.As == nil:
		return fmt.Sprintf("rule %d", *s.Rule+1)
	}
	text := fmt.Sprintf("as %s %s: rule %d", s.As.APIVersion, s.As.Kind, *s.Rule+1)
	if s.As.Equivalent {
		text += ", through an equivalent resource"
	}
	return text
}
