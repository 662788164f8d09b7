package console

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/lint"
	"github.com/gatehouse-dev/gatehouse/internal/pages"
	"github.com/gatehouse-dev/gatehouse/internal/report"
)

// seen is what the viewer could read of the registrations.
type seen struct {
	// Objects are registrations, Totals how many entries there are of each kind, and Hidden says of
	// kinds why the viewer may not read them.
	Objects []map[string]any  `json:"objects"`
	Totals  map[string]int    `json:"totals"`
	Hidden  map[string]string `json:"hidden"`
	States  []state           `json:"states"`
	Servers []string          `json:"servers"`
	// Metrics are those of the server, as it serves them. Before are those that the page read
	// Seconds earlier; empty when it has read none.
	Metrics string  `json:"metrics"`
	Before  string  `json:"before"`
	Seconds float64 `json:"seconds"`
	// Plan is that of some request. It has the plugins in their order.
	Plan *plan.Plan `json:"plan"`
	// Namespaces are the labels of namespaces.
	Namespaces map[string]map[string]string `json:"namespaces"`
	Notes      []string                     `json:"notes"`
}

// state is a RegistrationState.
type state struct {
	Registration struct {
		Resource string `json:"resource"`
		Name     string `json:"name"`
	} `json:"registration"`
	InForce  bool `json:"inForce"`
	Replicas []struct {
		Name            string `json:"name"`
		Address         string `json:"address"`
		ResourceVersion string `json:"resourceVersion"`
		InForce         bool   `json:"inForce"`
		Since           string `json:"since"`
		Skipped         []struct {
			Webhook string `json:"webhook"`
			Target  string `json:"target"`
			Reason  string `json:"reason"`
		} `json:"skipped"`
	} `json:"replicas"`
	Problems []struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"problems"`
}

func (s *seen) compile() *snapshot.Snapshot {
	var objects []runtime.Object
	for _, content := range s.Objects {
		// What is not understood is listed by its state.
		if obj, err := registration.FromContent(content); err == nil {
			objects = append(objects, obj)
		}
	}
	return snapshot.Compile(snapshot.Registrations{Objects: objects})
}

// lint finds what is dangerous in what the viewer could read.
func (s *seen) lint(ctx context.Context, compiled *snapshot.Snapshot) *lint.Report {
	w := &lint.World{Snapshot: compiled, Now: time.Now(), Partial: true, Namespaces: s.Namespaces, Hidden: map[registration.Source]string{}, Unseen: map[lint.Part]string{}}
	if w.Namespaces == nil {
		w.Namespaces = map[string]map[string]string{}
		w.Unseen[lint.Namespaces] = "may not list namespaces"
	}
	var rules []*lint.Rule
	for _, r := range lint.Rules() {
		if r.OnWrite {
			rules = append(rules, r)
		}
	}
	return lint.Check(ctx, w, lint.Options{Rules: rules})
}

func (s *seen) state(d *registration.Descriptor, name string) *state {
	i := slices.IndexFunc(s.States, func(one state) bool {
		return one.Registration.Resource == d.Resource && one.Registration.Name == name
	})
	if i < 0 {
		return nil
	}
	return &s.States[i]
}

func drawChain(ctx context.Context, body []byte) (any, error) {
	s := &seen{}
	if err := decode(body, s); err != nil {
		return nil, err
	}
	compiled := s.compile()
	found := s.lint(ctx, compiled)
	calls := s.calls()
	c := pages.Chain{Hidden: s.Notes}
	for _, kind := range sorted(s.Hidden) {
		c.Hidden = append(c.Hidden, kind+": "+s.Hidden[kind])
	}
	for _, pass := range []registration.Pass{registration.MutatingPass, registration.ValidatingPass} {
		p := pages.Pass{Name: pass.String()}
		for _, name := range s.plugins(pass, compiled) {
			p.Plugins = append(p.Plugins, pages.Plugin{Name: name})
		}
		for _, d := range registration.Sources() {
			if d.Binds || d.Pass != pass {
				continue
			}
			i := slices.IndexFunc(p.Plugins, func(one pages.Plugin) bool { return one.Name == d.Plugin })
			entries := compiled.Entries(d.Source)
			if i < 0 {
				continue
			}
			plugin := &p.Plugins[i]
			plugin.Acts = true
			for _, e := range entries {
				plugin.Entries = append(plugin.Entries, s.registered(e, found, calls))
			}
			plugin.More = max(0, s.Totals[d.Kind]-len(entries))
		}
		c.Passes = append(c.Passes, p)
	}
	return pages.OfChain(c, links), nil
}

// plugins are those of a pass, in order.
func (s *seen) plugins(pass registration.Pass, compiled *snapshot.Snapshot) []string {
	// What acts on registrations stands in its place although nothing is registered, or applies.
	shown := []string{"MutatingAdmissionPolicy", "MutatingAdmissionWebhook", "ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook"}
	var acting []string
	for _, source := range registration.InOrder() {
		d := source.Descriptor()
		if d.Pass == pass && !slices.Contains(acting, d.Plugin) && (slices.Contains(shown, d.Plugin) || len(compiled.Entries(source)) > 0) {
			acting = append(acting, d.Plugin)
		}
	}
	var names []string
	if s.Plan != nil {
		for step := range s.Plan.Each() {
			if step.Pass == pass.String() && step.Plugin != plan.ValidationName && !slices.Contains(slices.Concat(names, acting), step.Plugin) {
				names = append(names, step.Plugin)
			}
		}
	}
	// Two compiled-in plugins come after them.
	at := slices.IndexFunc(names, func(name string) bool { return name == "ResourceQuota" || name == "AlwaysDeny" })
	if at < 0 {
		at = len(names)
	}
	return slices.Insert(names, at, acting...)
}

func (s *seen) registered(e *snapshot.Entry, found *lint.Report, calls *calls) pages.Registered {
	d := e.Source.Descriptor()
	r := pages.Registered{Kind: d.Kind, Configuration: e.Configuration, Name: e.Name}
	if key, ok := statOf(e); ok && s.Metrics != "" {
		r.Counted, r.Calls = key.String(), calls.text(key)
	}
	fact := func(name, text string) {
		if text != "" {
			r.Facts = append(r.Facts, pages.Fact{Name: name, Text: text})
		}
	}
	fact("failurePolicy", string(e.FailurePolicy))
	if st := s.state(d, e.Configuration); st != nil {
		r.State, r.Class = "in force", "ok"
		for _, replica := range st.Replicas {
			if replica.InForce {
				fact("in force on "+replica.Name+" since", replica.Since)
			} else {
				fact("not in force on", replica.Name)
			}
			for _, k := range replica.Skipped {
				if k.Webhook == e.Name {
					r.State, r.Class = "not called", "bad"
					fact("not called by "+replica.Name, k.Target+": "+k.Reason)
				}
			}
		}
		if !st.InForce {
			r.State, r.Class = "not in force", "warn"
		}
		for _, p := range st.Problems {
			r.Problems = append(r.Problems, report.Finding{Level: report.Warning, Rule: p.Code, Message: p.Message})
		}
	}
	if w := e.Webhook; w != nil {
		fact("timeout", w.Timeout.String())
		target := w.ClientConfig.URL
		if service := w.ClientConfig.Service; service != nil {
			target = fmt.Sprintf("service %s/%s:%d%s", service.Namespace, service.Name, service.Port, service.Path)
		}
		fact("calls", target)
		fact("side effects", w.SideEffects)
		if end := expires(w.ClientConfig.CABundle); !end.IsZero() {
			text := end.UTC().Format(time.DateOnly)
			if time.Until(end) < 30*24*time.Hour {
				r.Problems = append(r.Problems, report.Finding{Level: report.Warning, Rule: "caBundle", Message: "A certificate of the caBundle expires on " + text + "."})
			}
			fact("caBundle expires", text)
		}
	}
	if n := len(e.MatchConditions); n > 0 {
		for _, c := range e.MatchConditions {
			fact("match condition "+c.Name, c.Expression)
		}
	}
	if e.Entry.Policy != nil {
		n := 0
		if e.Bindings != nil {
			n = len(e.Bindings.Table().Entries())
		}
		fact("bindings", fmt.Sprint(n))
		fact("validations", fmt.Sprint(len(e.Entry.Policy.Validations)))
		if n == 0 {
			r.State, r.Class = "not bound", "warn"
		}
	}
	for i := range e.Rules {
		r.Rules = append(r.Rules, ruleText(&e.Rules[i]))
	}
	for i := range found.Findings {
		f := &found.Findings[i]
		if f.Object.Kind == d.Kind && f.Object.Name == e.Configuration {
			r.Problems = append(r.Problems, f.At("", 0, 0))
		}
	}
	return r
}

func ruleText(r *registration.Rule) string {
	groups := strings.Join(r.APIGroups, ",")
	text := strings.Join(r.Operations, ",") + " " + path.Join(groups, strings.Join(r.APIVersions, ",")) + " " + strings.Join(r.Resources, ",")
	if r.Scope != "" && r.Scope != "*" {
		text += ", " + r.Scope
	}
	if len(r.ResourceNames) > 0 {
		text += ", named " + strings.Join(r.ResourceNames, ",")
	}
	return text
}

// expires is when the first certificate of a bundle expires; zero when there is none.
func expires(bundle []byte) (first time.Time) {
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && (first.IsZero() || c.NotAfter.Before(first)) {
			first = c.NotAfter
		}
	}
	return first
}

// drawHealth draws what is wrong: findings of lint, registrations that are not in force, webhooks
// that are not called.
func drawHealth(ctx context.Context, body []byte) (any, error) {
	s := &seen{}
	if err := decode(body, s); err != nil {
		return nil, err
	}
	compiled := s.compile()
	found := s.lint(ctx, compiled)
	f := report.Report{Title: "Health"}
	href := func(kind, name string) string { return links.Entry(kind, name) }
	for i := range found.Findings {
		one := &found.Findings[i]
		finding := one.At("", 0, 0)
		finding.Href = href(one.Object.Kind, one.Object.Name)
		f.Findings = append(f.Findings, finding)
	}
	servers := map[string]*server{}
	waiting := 0
	for i := range s.States {
		st := &s.States[i]
		kind := st.Registration.Resource
		for _, d := range registration.Sources() {
			if d.Resource == st.Registration.Resource {
				kind = d.Kind
			}
		}
		add := func(level report.Level, rule, text string) {
			f.Findings = append(f.Findings, report.Finding{Level: level, Rule: rule, Object: kind + " " + st.Registration.Name, Href: href(kind, st.Registration.Name), Message: text})
		}
		for _, r := range st.Replicas {
			one := servers[r.Name]
			if one == nil {
				one = &server{name: r.Name, address: r.Address}
				servers[r.Name] = one
			}
			one.judges(r.ResourceVersion, r.InForce)
			if !r.InForce {
				add("warning", "not in force", "The server "+r.Name+" does not judge requests by it as it is stored.")
			}
			for _, k := range r.Skipped {
				add("error", "not called", fmt.Sprintf("The server %s does not call the webhook %s at %s: %s.", r.Name, k.Webhook, k.Target, k.Reason))
			}
		}
		if !st.InForce {
			waiting++
		}
		for _, p := range st.Problems {
			add("warning", p.Code, p.Message)
		}
	}
	calls := s.calls()
	var idle, busy []string
	for _, d := range registration.Sources() {
		for _, e := range compiled.Entries(d.Source) {
			key, ok := statOf(e)
			switch {
			case !ok || s.Metrics == "":
			case calls.all[key] == nil:
				idle = append(idle, e.String())
			default:
				busy = append(busy, e.String()+": "+calls.text(key))
			}
		}
	}
	levels := map[report.Level]int{}
	for i := range f.Findings {
		levels[f.Findings[i].Level]++
	}
	f.Sums = []report.Sum{{Name: "errors", N: levels[report.Error]}, {Name: "warnings", N: levels[report.Warning]}, {Name: "notes", N: levels[report.Note]},
		{Name: "registrations", N: len(s.Objects)}}
	if s.States != nil {
		f.Sums = append(f.Sums, report.Sum{Name: "not in force everywhere", N: waiting}, report.Sum{Name: "servers", N: len(servers)})
	}
	slices.SortStableFunc(f.Findings, func(a, b report.Finding) int {
		return slices.Index(report.Levels, a.Level) - slices.Index(report.Levels, b.Level)
	})
	var names []string
	for _, name := range sorted(servers) {
		names = append(names, servers[name].String())
	}
	names = append(names, s.Servers...)
	hidden := s.Notes
	for _, kind := range sorted(s.Hidden) {
		hidden = append(hidden, kind+": "+s.Hidden[kind])
	}
	f.Parts = []report.Part{{Heading: "Webhooks and policies", Items: head(busy)}, {Heading: "Never matched since the server started", Items: head(idle)},
		{Heading: "Servers", Items: names}, {Heading: "Storage", Items: storage(s.Metrics)}, {Heading: "Not allowed, or not there", Items: hidden}, {Heading: "Not seen", Items: []string{"the services, workloads and roles behind the webhooks: gatehouse lint reads them"}}}
	return pages.OfReport(&f), nil
}

// server is one that judges requests.
type server struct {
	name, address string
	// registrations is how many it judges by, late how many not as they are stored, and newest the
	// revision of the newest one.
	registrations, late int
	newest              uint64
}

func (s *server) judges(revision string, inForce bool) {
	s.registrations++
	if !inForce {
		s.late++
	}
	if n, err := strconv.ParseUint(revision, 10, 64); err == nil {
		s.newest = max(s.newest, n)
	}
}

// String says what the server judges by.
func (s *server) String() string {
	text := s.name
	if s.address != "" {
		text += " at " + s.address
	}
	text += " judges by " + counted(float64(s.registrations), "registration")
	if s.newest > 0 {
		text += fmt.Sprintf(", of revisions up to %d", s.newest)
	}
	if s.late > 0 {
		text += fmt.Sprintf("; %d are not in force there as they are stored", s.late)
	}
	return text
}

// maxListed is how many sentences a part has.
const maxListed = 200

func head(list []string) []string {
	if len(list) > maxListed {
		return append(slices.Clone(list[:maxListed]), fmt.Sprintf("and %d more", len(list)-maxListed))
	}
	return list
}
