package lint

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/engine/expression"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

// Options are the options of Check.
type Options struct {
	// Rules are the rules to check; nil means all.
	Rules []*Rule
	// About, if set, selects the objects for which findings are wanted. Other objects count only for their effects
	// on these.
	About func(Object) bool
	// Progress, if set, is called with the number of finished rules, and the number of all.
	Progress func(done, of int)
}

// Result is the result of Check.
type Result struct {
	// Findings are ordered by level, then rule, then object.
	Findings []Finding
	// Checked are the rules that ran.
	Checked []*Rule
	// Unseen are sentences about parts that could not be seen, and the rules that they affect.
	Unseen []string
}

// Count returns the number of findings of a level.
func (r *Result) Count(level report.Level) int {
	n := 0
	for i := range r.Findings {
		if r.Findings[i].Level == level {
			n++
		}
	}
	return n
}

// Check runs rules over an Input. When ctx ends, it returns early with the findings so far.
func Check(ctx context.Context, w *Input, o Options) *Result {
	if o.Rules == nil {
		o.Rules = Rules()
	}
	p := &pass{
		Input: w, ctx: ctx, about: o.About, report: &Result{}, unseen: map[string]bool{},
		filters: map[*snapshot.Entry]int{}, filterNumbers: map[string]int{},
		shapes: map[string]*apiservercel.DeclType{}, checkers: map[string]*expression.Typed{},
		minimal: map[string]*expression.Partial{}, schemas: map[schema.GroupVersionKind]*spec.Schema{},
	}
	for i, r := range o.Rules {
		if ctx.Err() != nil {
			break
		}
		if o.Progress != nil {
			o.Progress(i, len(o.Rules))
		}
		if r.Upgrade && w.Upgrade == nil {
			continue
		}
		p.rule = r
		r.check(p)
		p.report.Checked = append(p.report.Checked, r)
	}
	p.sum()
	return p.report
}

// pass is one run over an Input.
type pass struct {
	*Input
	ctx    context.Context
	about  func(Object) bool
	report *Result
	// rule is the rule that runs.
	rule *Rule
	// unseen has the sentences about parts that the current rule could not see.
	unseen map[string]bool

	// filters numbers the selectors and conditions of entries.
	filters       map[*snapshot.Entry]int
	filterNumbers map[string]int
	// graph is built by the first rule that needs it.
	graph *graph
	// facts are the facts about expressions; see facts.go.
	facts        []*fact
	factsByEntry map[*snapshot.Entry][]*fact
	// builtin are the groups with kinds that no CRD defines; see isAbout.
	builtin map[string]bool
	// shapes are the types of objects, and checkers the type checkers based on them.
	shapes   map[string]*apiservercel.DeclType
	checkers map[string]*expression.Typed
	// minimal are the smallest objects of kinds, and schemas their schemas.
	minimal map[string]*expression.Partial
	schemas map[schema.GroupVersionKind]*spec.Schema
}

// place is the place of a finding.
type place struct {
	object Object
	path   []any
}

// at returns a place in an entry.
func at(e *registration.Entry, path ...any) place {
	o := place{object: objectOf(e)}
	switch e.Source {
	case registration.Mutating, registration.Validating:
		o.path = []any{"webhooks", e.Index}
	case registration.External:
		o.path = []any{"externalAdmissionHooks", e.Index}
	case registration.Initializing:
		o.path = []any{"initializers", e.Index}
	default:
		o.path = []any{"spec"}
	}
	o.path = append(o.path, path...)
	return o
}

func objectOf(e *registration.Entry) Object {
	return Object{Kind: e.Source.String(), Name: e.Configuration}
}

// wanted reports whether findings about an object are wanted: the object is not patched, and Options.About selects
// it.
func (p *pass) wanted(o Object) bool { return p.Patched[o] == "" && (p.about == nil || p.about(o)) }

// patched reports whether the object of an entry is not applied as written.
func (p *pass) patched(e *snapshot.Entry) bool { return p.Patched[objectOf(e.Entry)] != "" }

// old reports whether a file has a webhook configuration in a version before v1. Rule registration-old reports it; a
// configuration of v1 has other defaults.
func (p *pass) old(o Object) bool {
	version := p.Written[o].APIVersion
	return (o.Kind == registration.MutatingKind || o.Kind == registration.ValidatingKind) && version != "" && !strings.HasSuffix(version, "/v1")
}

// byOldDefault reports whether the value of a field of a webhook is the default of a version before v1.
func (p *pass) byOldDefault(e *registration.Entry, field string) bool {
	return p.byDefaultOf(objectOf(e), e.Index, field)
}

func (p *pass) byDefaultOf(o Object, index int, field string) bool {
	return p.old(o) && !p.Written[o].Fields[pathText([]any{"webhooks", index, field})]
}

// finds adds a finding of the rule's own level.
func (p *pass) finds(where place, format string, args ...any) {
	p.findsAs(p.rule.Level, where, format, args...)
}

// findsAs adds a finding of another level.
func (p *pass) findsAs(level report.Level, where place, format string, args ...any) {
	if !p.wanted(where.object) || level == Note && p.old(where.object) {
		return
	}
	p.report.Findings = append(p.report.Findings, Finding{
		Rule: p.rule, Level: level, Message: fmt.Sprintf(format, args...), Object: where.object, Path: where.path,
	})
}

// findsCause adds one of several findings with a common cause. The report has the first of these findings, which
// names the others.
func (p *pass) findsCause(level report.Level, where place, cause, who, format string, args ...any) {
	before := len(p.report.Findings)
	p.findsAs(level, where, format, args...)
	if len(p.report.Findings) > before {
		f := &p.report.Findings[before]
		f.cause, f.who, f.said = cause, who, f.Message
	}
}

// merge merges findings with a common cause into one.
func merge(findings []Finding) []Finding {
	type key struct {
		rule  *Rule
		level report.Level
		cause string
	}
	first := map[key]int{}
	merged := findings[:0]
	for _, f := range findings {
		k := key{f.Rule, f.Level, f.cause}
		if i, ok := first[k]; ok && f.cause != "" {
			if one := &merged[i]; f.who == one.who {
				// Webhooks of two configurations can have one name.
				f.who += " of " + f.Object.String()
			}
			merged[i].add(f.who)
			continue
		}
		if f.cause != "" {
			first[k] = len(merged)
		}
		merged = append(merged, f)
	}
	return merged
}

// noteOf are the rules whose notes have one remedy, the most useful first: a webhook gets one of them.
var noteOf = []*Rule{unscoped, mutatingFailsClosed, mutatesMirrorPods}

// oneNote removes the findings about a webhook whose remedy another finding has: about the same webhook, or, for the
// replicas of a server, about another webhook of the server.
func (p *pass) oneNote(findings []Finding) []Finding {
	type webhook struct {
		Object
		index any
	}
	of := func(f *Finding) webhook {
		if len(f.Path) < 2 {
			return webhook{Object: f.Object}
		}
		return webhook{f.Object, f.Path[1]}
	}
	servers := map[webhook]types.NamespacedName{}
	p.webhooks(func(e *snapshot.Entry) {
		servers[webhook{objectOf(e.Entry), e.Index}], _ = p.serviceOf(&e.ClientConfig)
	})
	best, blocked := map[webhook]int{}, map[types.NamespacedName]bool{}
	for i := range findings {
		f := &findings[i]
		rank := slices.Index(noteOf, f.Rule)
		if f.Rule == selfDeadlock || f.Rule == controlPlaneNotExempt {
			rank = -len(noteOf)
			blocked[servers[of(f)]] = blocked[servers[of(f)]] || f.Level == Error
		} else if f.Rule == singleReplica {
			// A webhook that cannot be reached is the problem of both.
			rank = 0
		} else if rank < 0 {
			continue
		}
		best[of(f)] = min(best[of(f)], rank-len(noteOf))
	}
	return slices.DeleteFunc(findings, func(f Finding) bool {
		if f.Rule == singleReplica {
			return blocked[servers[of(&f)]]
		}
		rank := slices.Index(noteOf, f.Rule)
		return rank >= 0 && best[of(&f)] < rank-len(noteOf)
	})
}

// misses notes a part of the Input that the rule needs and cannot see.
func (p *pass) misses(format string, args ...any) { p.unseen[fmt.Sprintf(format, args...)] = true }

// sum sorts the report.
func (p *pass) sum() {
	p.report.sort()
	p.report.Findings = merge(p.oneNote(p.report.Findings))
	for _, source := range slices.Sorted(maps.Keys(p.Hidden)) {
		p.report.Unseen = append(p.report.Unseen, fmt.Sprintf("%s: %s", source.Descriptor().Resource, p.Hidden[source]))
	}
	for _, part := range slices.Sorted(maps.Keys(p.Unseen)) {
		var names []string
		for _, r := range p.report.Checked {
			if slices.Contains(r.Reads, part) {
				names = append(names, r.ID)
			}
		}
		if len(names) > 0 {
			p.report.Unseen = append(p.report.Unseen, fmt.Sprintf("%s: %s (%s)", part, p.Unseen[part], strings.Join(names, ", ")))
		}
	}
	for _, o := range slices.SortedFunc(maps.Keys(p.Patched), compareObjects) {
		p.misses("%s: %s changes it, or leaves out its file; give the command what 'kubectl kustomize %s' makes, as -", o, p.Patched[o], path.Dir(p.Patched[o]))
	}
	if p.Partial {
		p.report.Unseen = append(p.report.Unseen, "objects outside of the files: they may exist all the same")
	}
	if u := p.Upgrade; u != nil && u.Known.LessThan(u.To) {
		p.misses("what Kubernetes %s newly serves: the data here is of %s, with the removals that were planned then", minor(u.To), minor(u.Known))
	}
	if u := p.Upgrade; u != nil && u.Gates != nil {
		p.misses("which objects Kubernetes %s newly rejects, and the CEL functions that it adds: the libraries here are older, and the data is of its beta", minor(u.Known))
	}
	p.report.Unseen = append(p.report.Unseen, slices.Sorted(maps.Keys(p.unseen))...)
}

// sort sorts the findings.
func (r *Result) sort() {
	rank := func(l report.Level) int { return slices.Index([]report.Level{Error, Warning, Note}, l) }
	places := map[*Rule]int{}
	for i, rule := range r.Checked {
		places[rule] = i
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(rank(a.Level)-rank(b.Level), places[a.Rule]-places[b.Rule],
			compareObjects(a.Object, b.Object), comparePaths(a.Path, b.Path))
	})
}

func compareObjects(a, b Object) int {
	return cmp.Or(strings.Compare(a.String(), b.String()), strings.Compare(a.At, b.At))
}

func comparePaths(a, b []any) int {
	return slices.CompareFunc(a, b, func(x, y any) int {
		if n, ok := x.(int); ok {
			if m, ok := y.(int); ok {
				return n - m
			}
		}
		return cmp.Compare(fmt.Sprint(x), fmt.Sprint(y))
	})
}

// webhooks calls f for every webhook for which findings are wanted.
func (p *pass) webhooks(f func(*snapshot.Entry)) {
	for _, source := range hooks {
		for _, e := range p.Snapshot.Entries(source) {
			if p.wanted(objectOf(e.Entry)) {
				f(e)
			}
		}
	}
}

// entries calls f for every entry of any source for which findings are wanted.
func (p *pass) entries(f func(*snapshot.Entry)) {
	for _, d := range registration.Sources() {
		for _, e := range p.Snapshot.Entries(d.Source) {
			if p.wanted(objectOf(e.Entry)) {
				f(e)
			}
		}
	}
}

// eachWebhook, eachEntry, eachClient and eachFact return checks that call check for each webhook, entry, client or
// expression.
func eachWebhook(check func(*pass, *snapshot.Entry)) func(*pass) {
	return func(p *pass) { p.webhooks(func(e *snapshot.Entry) { check(p, e) }) }
}

func eachEntry(check func(*pass, *snapshot.Entry)) func(*pass) {
	return func(p *pass) { p.entries(func(e *snapshot.Entry) { check(p, e) }) }
}

func eachClient(check func(*pass, *client)) func(*pass) {
	return func(p *pass) {
		for _, c := range p.clients() {
			check(p, &c)
		}
	}
}

func eachFact(check func(*pass, *fact)) func(*pass) {
	return func(p *pass) {
		for _, f := range p.analyses() {
			check(p, f)
		}
	}
}

// isWanted is wanted for an entry.
func (p *pass) isWanted(e *snapshot.Entry) bool { return p.wanted(objectOf(e.Entry)) }

// failsClosed reports whether a request is rejected when the webhook cannot be called.
func failsClosed(e *snapshot.Entry) bool { return e.FailurePolicy == registration.Fail }

// serviceOf returns the service of a webhook that runs in the cluster; ok is false for a webhook outside of the
// cluster.
func (w *Input) serviceOf(c *registration.ClientConfig) (name types.NamespacedName, ok bool) {
	name, ok = namedService(c)
	if ok && w.Elsewhere != nil && w.Elsewhere(name) {
		return types.NamespacedName{}, false
	}
	return name, ok
}

// namedService returns the service that a webhook names; ok is false if it names none. A URL may name a service,
// too.
func namedService(c *registration.ClientConfig) (name types.NamespacedName, ok bool) {
	if s := c.Service; s != nil {
		return types.NamespacedName{Namespace: s.Namespace, Name: s.Name}, true
	}
	host := addressOf(c).Host
	for _, suffix := range []string{".svc", ".svc.cluster.local"} {
		if rest, found := strings.CutSuffix(host, suffix); found {
			if service, namespace, found := strings.Cut(rest, "."); found && !strings.Contains(namespace, ".") {
				return types.NamespacedName{Namespace: namespace, Name: service}, true
			}
		}
	}
	return name, false
}

// addressOf returns the address of a webhook.
func addressOf(c *registration.ClientConfig) Address {
	if s := c.Service; s != nil {
		return Address{s.Name + "." + s.Namespace + ".svc", int(cmp.Or(s.Port, 443))}
	}
	u, err := url.Parse(c.URL)
	if err != nil {
		return Address{}
	}
	a := Address{Host: u.Hostname(), Port: 443}
	if n, err := strconv.Atoi(u.Port()); err == nil {
		a.Port = n
	}
	return a
}

// String returns the address in the form for dialling.
func (a Address) String() string { return net.JoinHostPort(a.Host, strconv.Itoa(a.Port)) }

// unless returns the end of a message about a finding that depends on a part that cannot be seen.
func unless(unsure string) string {
	if unsure == "" {
		return ""
	}
	return "; it depends on what cannot be seen: " + unsure
}

// and joins words: a, b and c.
func and(words []string) string {
	switch n := len(words); n {
	case 0:
		return ""
	case 1:
		return words[0]
	default:
		return strings.Join(words[:n-1], ", ") + " and " + words[n-1]
	}
}

// few joins at most four words, and counts the rest.
func few(words []string) string {
	if len(words) > 4 {
		words = append(slices.Clone(words[:3]), fmt.Sprintf("%d more", len(words)-3))
	}
	return and(words)
}
