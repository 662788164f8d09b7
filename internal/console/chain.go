package console

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/lint"
	"github.com/gatehouse-dev/gatehouse/internal/pages"
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
	// Metrics are those of the server, as it serves them.
	Metrics string `json:"metrics"`
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
		Name    string `json:"name"`
		InForce bool   `json:"inForce"`
		Since   string `json:"since"`
		Skipped []struct {
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
	stats := readMetrics(s.Metrics)
	c := pages.Chain{Hidden: s.Notes}
	for _, kind := range sorted(s.Hidden) {
		c.Hidden = append(c.Hidden, kind+": "+s.Hidden[kind])
	}
	for _, pass := range []registration.Pass{registration.MutatingPass, registration.ValidatingPass} {
		p := pages.Pass{Name: pass.String()}
		for _, name := range s.plugins(pass) {
			p.Plugins = append(p.Plugins, pages.Plugin{Name: name})
		}
		for _, d := range registration.Sources() {
			if d.Binds || d.Pass != pass {
				continue
			}
			i := slices.IndexFunc(p.Plugins, func(one pages.Plugin) bool { return one.Name == d.Plugin })
			entries := compiled.Entries(d.Source)
			if i < 0 {
				if len(entries) == 0 {
					continue
				}
				i = len(p.Plugins)
				p.Plugins = append(p.Plugins, pages.Plugin{Name: d.Plugin})
			}
			plugin := &p.Plugins[i]
			plugin.Acts = true
			for _, e := range entries {
				plugin.Entries = append(plugin.Entries, s.registered(e, found, stats))
			}
			plugin.More = max(0, s.Totals[d.Kind]-len(entries))
		}
		c.Passes = append(c.Passes, p)
	}
	return pages.OfChain(c, links), nil
}

// plugins are those of a pass, in order.
func (s *seen) plugins(pass registration.Pass) []string {
	var names []string
	if s.Plan != nil {
		for i := range s.Plan.Steps {
			if step := &s.Plan.Steps[i]; step.Pass == pass.String() && step.Plugin != plan.ValidationName && !slices.Contains(names, step.Plugin) {
				names = append(names, step.Plugin)
			}
		}
	}
	// What acts on registrations stands in its place although nothing is registered.
	last := []string{"MutatingAdmissionPolicy", "MutatingAdmissionWebhook", "ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook"}
	for _, d := range registration.Sources() {
		if !d.Binds && d.Pass == pass && slices.Contains(last, d.Plugin) && !slices.Contains(names, d.Plugin) {
			names = append(names, d.Plugin)
		}
	}
	return names
}

func (s *seen) registered(e *snapshot.Entry, found *lint.Report, stats map[statKey]*stat) pages.Registered {
	d := e.Source.Descriptor()
	r := pages.Registered{Kind: d.Kind, Configuration: e.Configuration, Name: e.Name}
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
			r.Problems = append(r.Problems, pages.Finding{Level: "warning", Rule: p.Code, Text: p.Message})
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
				r.Problems = append(r.Problems, pages.Finding{Level: "warning", Rule: "caBundle", Text: "A certificate of the caBundle expires on " + text + "."})
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
	kind := "admit"
	if d.Pass == registration.ValidatingPass {
		kind = "validating"
	}
	if st := stats[statKey{e.Name, kind}]; st != nil && e.Webhook != nil {
		fact("calls since the start", fmt.Sprintf("%.0f, %.0f rejected", st.calls, st.rejected))
		fact("p50, p99", fmt.Sprintf("%s, %s", st.quantile(.5), st.quantile(.99)))
	}
	for i := range found.Findings {
		f := &found.Findings[i]
		if f.Object.Kind == d.Kind && f.Object.Name == e.Configuration {
			r.Problems = append(r.Problems, pages.Finding{Level: string(f.Level), Rule: f.Rule.ID, Text: f.Field() + ": " + f.Message + "."})
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

// statKey names a webhook as metrics do.
type statKey struct{ name, kind string }

// stat is what metrics say of a webhook.
type stat struct {
	calls, rejected float64
	buckets         map[float64]float64
}

// quantile is a bound of the share q of the calls, by the buckets of the histogram.
func (s *stat) quantile(q float64) string {
	for _, bound := range sorted(s.buckets) {
		if s.buckets[bound] >= q*s.calls {
			return "at most " + time.Duration(bound*float64(time.Second)).String()
		}
	}
	return "more"
}

// readMetrics reads the durations of calls of webhooks.
func readMetrics(text string) map[statKey]*stat {
	const family = "apiserver_admission_webhook_admission_duration_seconds"
	stats := map[statKey]*stat{}
	if text == "" {
		return stats
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader([]byte(text)))
	if err != nil || families[family] == nil {
		return stats
	}
	for _, m := range families[family].Metric {
		labels := map[string]string{}
		for _, l := range m.Label {
			labels[l.GetName()] = l.GetValue()
		}
		key := statKey{labels["name"], labels["type"]}
		s := stats[key]
		if s == nil {
			s = &stat{buckets: map[float64]float64{}}
			stats[key] = s
		}
		n := float64(m.Histogram.GetSampleCount())
		s.calls += n
		if labels["rejected"] == "true" {
			s.rejected += n
		}
		for _, b := range m.Histogram.Bucket {
			s.buckets[b.GetUpperBound()] += float64(b.GetCumulativeCount())
		}
	}
	return stats
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
	f := pages.Findings{Title: "Health"}
	href := func(kind, name string) string { return links.Entry(kind, name) }
	for i := range found.Findings {
		one := &found.Findings[i]
		f.Findings = append(f.Findings, pages.Finding{
			Level: string(one.Level), Rule: one.Rule.ID, Object: one.Object.String(), Href: href(one.Object.Kind, one.Object.Name),
			Text: one.Field() + ": " + one.Message + ".",
		})
	}
	servers := map[string]int{}
	waiting := 0
	for i := range s.States {
		st := &s.States[i]
		kind := st.Registration.Resource
		for _, d := range registration.Sources() {
			if d.Resource == st.Registration.Resource {
				kind = d.Kind
			}
		}
		add := func(level, rule, text string) {
			f.Findings = append(f.Findings, pages.Finding{Level: level, Rule: rule, Object: kind + " " + st.Registration.Name, Href: href(kind, st.Registration.Name), Text: text})
		}
		for _, r := range st.Replicas {
			servers[r.Name]++
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
	stats := readMetrics(s.Metrics)
	var idle, slow []string
	for _, source := range []registration.Source{registration.Mutating, registration.Validating} {
		kind := "admit"
		if source == registration.Validating {
			kind = "validating"
		}
		for _, e := range compiled.Entries(source) {
			st := stats[statKey{e.Name, kind}]
			switch {
			case s.Metrics == "":
			case st == nil || st.calls == 0:
				idle = append(idle, e.String())
			default:
				slow = append(slow, fmt.Sprintf("%s: called %.0f times, %.0f rejected, p50 %s, p99 %s", e.String(), st.calls, st.rejected, st.quantile(.5), st.quantile(.99)))
			}
		}
	}
	levels := map[string]int{}
	for i := range f.Findings {
		levels[f.Findings[i].Level]++
	}
	f.Sums = []pages.Sum{{Name: "errors", N: levels["error"]}, {Name: "warnings", N: levels["warning"]}, {Name: "notes", N: levels["note"]},
		{Name: "registrations", N: len(s.Objects)}}
	if s.States != nil {
		f.Sums = append(f.Sums, pages.Sum{Name: "not in force everywhere", N: waiting}, pages.Sum{Name: "servers", N: len(servers)})
	}
	order := []string{"error", "warning", "note"}
	slices.SortStableFunc(f.Findings, func(a, b pages.Finding) int { return slices.Index(order, a.Level) - slices.Index(order, b.Level) })
	var names []string
	for _, name := range sorted(servers) {
		names = append(names, fmt.Sprintf("%s judges by %d registrations", name, servers[name]))
	}
	names = append(names, s.Servers...)
	hidden := s.Notes
	for _, kind := range sorted(s.Hidden) {
		hidden = append(hidden, kind+": "+s.Hidden[kind])
	}
	f.Parts = []pages.Part{{Heading: "Webhooks, since the server started", Items: slow}, {Heading: "Never called since the server started", Items: head(idle)},
		{Heading: "Servers", Items: names}, {Heading: "Storage", Items: storage(s.Metrics)}, {Heading: "Not allowed, or not there", Items: hidden}, {Heading: "Not seen", Items: []string{"the services, workloads and roles behind the webhooks: gatehouse lint reads them"}}}
	return pages.OfFindings(f), nil
}

// storage says how large the databases of etcd are, as the metrics of a kube-apiserver do.
func storage(text string) []string {
	const family = "apiserver_storage_size_bytes"
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil || families[family] == nil {
		return nil
	}
	var list []string
	for _, m := range families[family].Metric {
		name := "etcd"
		for _, l := range m.Label {
			name = cmp.Or(l.GetValue(), name)
		}
		// Without a line about its type, a family is untyped.
		list = append(list, fmt.Sprintf("the database of %s has %.1f MiB", name, (m.GetGauge().GetValue()+m.GetUntyped().GetValue())/(1<<20)))
	}
	return list
}

// maxListed is how many sentences a part has.
const maxListed = 200

func head(list []string) []string {
	if len(list) > maxListed {
		return append(slices.Clone(list[:maxListed]), fmt.Sprintf("and %d more", len(list)-maxListed))
	}
	return list
}
