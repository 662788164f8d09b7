package console

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/readers/lint"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
	"github.com/gatehouse-dev/gatehouse/internal/readers/view"
)

// seen has the registrations that the viewer is allowed to read.
type seen struct {
	// objects are registrations. hidden has the reason for each kind that the viewer cannot read.
	objects []map[string]any
	hidden  map[string]string
	// kinds counts the readable kinds, and read their objects.
	kinds, read int
	// totals counts the entries of each kind that match the filter, including entries that are not
	// drawn.
	totals map[string]int
	// states are nil if they cannot be read.
	states  []state
	metrics metrics
	counts  counts
	window  *window
	// plan is the plan of an arbitrary request. It lists the plugins in order.
	plan *plan.Plan
	// namespaces are the labels of namespaces; nil if they cannot be read.
	namespaces map[string]map[string]string
	notes      []string
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

// atOnce is the number of registrations per page of a list, and maxNamespaces bounds the namespaces
// whose labels are read.
const atOnce, maxNamespaces = 500, 5000

// see reads the registrations that the viewer is allowed to read. kept selects the objects to keep.
func (v *viewer) see(w *window, kept func(d *registration.Descriptor, object map[string]any) bool) (*seen, error) {
	s := &seen{hidden: map[string]string{}, totals: map[string]int{}, window: w}
	for i := range registration.Sources() {
		d := &registration.Sources()[i]
		path := inside("admissionregistration.k8s.io", d.Versions[0], "", d.Resource)
		next, err := "", error(nil)
		for more := true; more && err == nil; more = next != "" {
			next, err = v.page(path, atOnce, next, func(apiVersion string, object map[string]any) {
				object["apiVersion"], object["kind"] = apiVersion, d.Kind
				unstructured.RemoveNestedField(object, "metadata", "managedFields")
				s.read++
				if kept(d, object) {
					s.objects = append(s.objects, object)
				}
			})
		}
		switch code := codeOf(err); {
		case err == nil:
			s.kinds++
		case code == http.StatusNotFound:
		case code == http.StatusUnauthorized || code == http.StatusBadGateway || code == http.StatusGatewayTimeout || code == http.StatusTooManyRequests:
			// Nothing can be read.
			return nil, err
		case code == http.StatusForbidden:
			s.hidden[d.Kind] = "not allowed"
		default:
			s.hidden[d.Kind] = err.Error()
		}
	}
	var states struct {
		Items []state `json:"items"`
	}
	if s.optional("the states of registrations", v.get(inside(group, version, "", "registrationstates"), &states)) {
		s.states = append([]state{}, states.Items...)
	}
	var err error
	if s.metrics, err = v.readMetrics(); s.optional("the metrics of the server", err) {
		s.counts = s.metrics.counts()
	}
	e, err := v.explain(map[string]any{
		"operation": "CREATE", "resource": metav1.GroupVersionResource{Version: "v1", Resource: "pods"}, "namespace": metav1.NamespaceDefault,
		"object": json.RawMessage(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"any"},"spec":{"containers":[{"name":"any","image":"any"}]}}`),
	})
	if s.optional("the plugins, by an explanation", err) {
		s.plan = e.Status.Plan
	}
	labels := map[string]map[string]string{}
	_, err = v.page("/api/v1/namespaces", maxNamespaces, "", func(_ string, object map[string]any) {
		u := &unstructured.Unstructured{Object: object}
		labels[u.GetName()] = u.GetLabels()
	})
	if s.optional("the labels of namespaces", err) {
		s.namespaces = labels
	}
	return s, nil
}

// page reads one page of a list; next is the continue token.
func (v *viewer) page(path string, some int, from string, each func(apiVersion string, object map[string]any)) (next string, err error) {
	var list struct {
		APIVersion string `json:"apiVersion"`
		Metadata   struct {
			Continue string `json:"continue"`
		} `json:"metadata"`
		Items []map[string]any `json:"items"`
	}
	if err := v.get(fmt.Sprintf("%s?limit=%d&continue=%s", path, some, url.QueryEscape(from)), &list); err != nil {
		return "", err
	}
	for _, object := range list.Items {
		if object != nil {
			each(list.APIVersion, object)
		}
	}
	return list.Metadata.Continue, nil
}

// optional notes the reason if something could not be read, and reports whether it could.
func (s *seen) optional(what string, err error) bool {
	switch {
	case err == nil:
		return true
	case codeOf(err) == http.StatusForbidden:
		s.notes = append(s.notes, "Not allowed: "+what+".")
	case codeOf(err) == http.StatusNotFound || codeOf(err) == http.StatusNotImplemented:
		s.notes = append(s.notes, "This needs Gatehouse: "+what+".")
	default:
		s.notes = append(s.notes, what+": "+err.Error())
	}
	return false
}

// unseen lists the data that the viewer cannot see, with reasons.
func (s *seen) unseen() []string {
	list := s.notes
	for _, kind := range sorted(s.hidden) {
		list = append(list, kind+": "+s.hidden[kind])
	}
	return list
}

// drawing returns the drawing of a Document, with the counts.
func (s *seen) drawing(view *view.Document) *drawing {
	d := &drawing{view: view, Status: fmt.Sprintf("%d registrations", s.read), Whole: len(s.hidden) == 0, Counts: s.counts}
	if !d.Whole {
		d.Status = cmp.Or(s.blind(), d.Status+" that you may read")
	}
	return d
}

// blind returns a message if no kind is readable; empty otherwise.
func (s *seen) blind() string {
	if s.kinds > 0 {
		return ""
	}
	return "You may read no registrations"
}

func (s *seen) compile() *snapshot.Snapshot {
	var objects []runtime.Object
	for _, content := range s.objects {
		// A registration that cannot be decoded is listed by its state.
		if obj, err := registration.FromContent(content); err == nil {
			objects = append(objects, obj)
		}
	}
	return snapshot.Compile(snapshot.Registrations{Objects: objects})
}

// lint runs the rules over the registrations that the viewer could read.
func (s *seen) lint(ctx context.Context, compiled *snapshot.Snapshot) *lint.Result {
	w := &lint.Input{Snapshot: compiled, Now: time.Now(), Partial: true, Namespaces: s.namespaces, Hidden: map[registration.Source]string{}, Unseen: map[lint.Part]string{}}
	if w.Namespaces == nil {
		w.Namespaces = map[string]map[string]string{}
		w.Unseen[lint.Namespaces] = "may not list namespaces"
	}
	return lint.Check(ctx, w, lint.Options{Rules: lint.RulesOnWrite()})
}

func (s *seen) state(d *registration.Descriptor, name string) *state {
	i := slices.IndexFunc(s.states, func(one state) bool {
		return one.Registration.Resource == d.Resource && one.Registration.Name == name
	})
	if i < 0 {
		return nil
	}
	return &s.states[i]
}

// most bounds the entries of a kind that are drawn.
const most = 300

func viewChain(v *viewer, asked []byte) (any, error) {
	var wanted struct {
		// Filter has words of kinds and names.
		Filter string `json:"filter"`
		window
	}
	if err := decode(asked, &wanted); err != nil {
		return nil, err
	}
	words := strings.Fields(strings.ToLower(wanted.Filter))
	drawn, totals := map[string]int{}, map[string]int{}
	s, err := v.see(&wanted.window, func(d *registration.Descriptor, object map[string]any) bool {
		if d.Binds {
			return true
		}
		entries, text := 1, d.Kind+" "+(&unstructured.Unstructured{Object: object}).GetName()
		for _, field := range []string{"webhooks", "initializers", "externalAdmissionHooks"} {
			list, _ := object[field].([]any)
			entries = max(entries, len(list))
			for _, one := range list {
				if m, ok := one.(map[string]any); ok {
					text += fmt.Sprint(" ", m["name"])
				}
			}
		}
		text = strings.ToLower(text)
		if slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) }) {
			return false
		}
		totals[d.Kind] += entries
		if drawn[d.Kind] > 0 && drawn[d.Kind]+entries > most {
			return false
		}
		drawn[d.Kind] += entries
		return true
	})
	if err != nil {
		return nil, err
	}
	s.totals = totals
	return s.drawing(view.OfChain(s.chain(v.context))), nil
}

// chain returns the plugins of both passes, with their entries.
func (s *seen) chain(ctx context.Context) view.Chain {
	compiled := s.compile()
	found := s.lint(ctx, compiled)
	c := view.Chain{Hidden: s.unseen()}
	for _, pass := range []registration.Pass{registration.MutatingPass, registration.ValidatingPass} {
		p := view.Pass{Name: pass.String()}
		for _, name := range s.plugins(pass, compiled) {
			p.Plugins = append(p.Plugins, view.Plugin{Name: name})
		}
		for _, d := range registration.Sources() {
			if d.Binds || d.Pass != pass {
				continue
			}
			i := slices.IndexFunc(p.Plugins, func(one view.Plugin) bool { return one.Name == d.Plugin })
			entries := compiled.Entries(d.Source)
			if i < 0 {
				continue
			}
			plugin := &p.Plugins[i]
			plugin.Acts, plugin.Hidden = true, s.hidden[d.Kind] != ""
			for _, e := range entries {
				plugin.Entries = append(plugin.Entries, s.registered(e, found))
			}
			plugin.More = max(0, s.totals[d.Kind]-len(entries))
		}
		c.Passes = append(c.Passes, p)
	}
	return c
}

// plugins returns the plugins of a pass, in order.
func (s *seen) plugins(pass registration.Pass, compiled *snapshot.Snapshot) []string {
	// Plugins for webhooks and policies are shown even without entries.
	shown := []string{"MutatingAdmissionPolicy", "MutatingAdmissionWebhook", "ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook"}
	var acting []string
	for _, source := range registration.InOrder() {
		d := source.Descriptor()
		if d.Pass == pass && !slices.Contains(acting, d.Plugin) && (slices.Contains(shown, d.Plugin) || len(compiled.Entries(source)) > 0) {
			acting = append(acting, d.Plugin)
		}
	}
	var names []string
	if s.plan != nil {
		for step := range s.plan.Each() {
			if step.Pass == pass.String() && step.Plugin != plan.ValidationName && !slices.Contains(slices.Concat(names, acting), step.Plugin) {
				names = append(names, step.Plugin)
			}
		}
	}
	// Two built-in admission plugins run after them.
	at := slices.IndexFunc(names, func(name string) bool { return name == "ResourceQuota" || name == "AlwaysDeny" })
	if at < 0 {
		at = len(names)
	}
	return slices.Insert(names, at, acting...)
}

func (s *seen) registered(e *snapshot.Entry, found *lint.Result) view.Registered {
	d := e.Source.Descriptor()
	r := view.Registered{Kind: d.Kind, Configuration: e.Configuration, Name: e.Name}
	if key, ok := statOf(e); ok && s.counts != nil {
		r.Counted, r.Calls = key, s.counts.text(key, s.window)
	}
	fact := func(name, text string) {
		if text != "" {
			r.Facts = append(r.Facts, view.Fact{Name: name, Text: text})
		}
	}
	fact("failurePolicy", string(e.FailurePolicy))
	if st := s.state(d, e.Configuration); st != nil {
		r.State, r.Class = "active", "ok"
		for _, replica := range st.Replicas {
			if replica.InForce {
				fact("active on "+replica.Name+" since", replica.Since)
			} else {
				fact("not active on", replica.Name)
			}
			for _, k := range replica.Skipped {
				if k.Webhook == e.Name {
					r.State, r.Class = "not called", "bad"
					fact("not called by "+replica.Name, k.Target+": "+k.Reason)
				}
			}
		}
		if !st.InForce {
			r.State, r.Class = "not active", "warn"
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

// expires returns the earliest expiry of the certificates in a bundle; zero if there is none.
func expires(bundle []byte) (first time.Time) {
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && (first.IsZero() || c.NotAfter.Before(first)) {
			first = c.NotAfter
		}
	}
	return first
}

func viewHealth(v *viewer, asked []byte) (any, error) {
	w := &window{}
	if err := decode(asked, w); err != nil {
		return nil, err
	}
	s, err := v.see(w, func(*registration.Descriptor, map[string]any) bool { return true })
	if err != nil {
		return nil, err
	}
	return s.drawing(view.OfReport(s.health(v.context, v.servers(s)))), nil
}

// servers describes the health of the server, and names the leader of the controllers.
func (v *viewer) servers(s *seen) []string {
	var list []string
	ready := &budgeted{viewer: v}
	err := v.send(http.MethodGet, "/readyz?verbose", nil, ready)
	text := ready.String()
	if codeOf(err) == http.StatusInternalServerError {
		text, err = err.Error(), nil
	}
	if s.optional("whether the server is ready", err) {
		bad := slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool { return !strings.HasPrefix(line, "[-]") })
		if len(bad) > 0 {
			list = append(list, "This server is not ready: "+strings.Join(bad, " "))
		} else {
			list = append(list, "This server is ready.")
		}
	}
	list = append(list, v.members(s)...)
	var leases coordinationv1.LeaseList
	if !s.optional("the leaders of controllers", v.get("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases?limit=500", &leases)) {
		return list
	}
	led := false
	for i := range leases.Items {
		l := &leases.Items[i]
		if l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "" || l.Labels["apiserver.kubernetes.io/identity"] != "" {
			continue
		}
		led = true
		text := l.Name + " runs on " + *l.Spec.HolderIdentity
		if l.Spec.RenewTime != nil {
			text += ", renewed at " + l.Spec.RenewTime.UTC().Format(time.RFC3339)
		}
		list = append(list, text+".")
	}
	if !led {
		list = append(list, "No Lease in kube-system names a leader of controllers. A server with an embedded etcd is alone and runs them itself.")
	}
	return list
}

// members lists the members of an embedded etcd with several servers.
func (v *viewer) members(s *seen) (list []string) {
	var own struct {
		Behind   uint64   `json:"behind"`
		Problems []string `json:"problems"`
		Members  []struct {
			Name    string `json:"name"`
			Address string `json:"address"`
			Leader  bool   `json:"leader"`
			Joining bool   `json:"joining"`
		} `json:"members"`
	}
	// Only a server of a cluster of servers has this path.
	if err := v.get("/cluster/member", &own); codeOf(err) == http.StatusNotFound || !s.optional("the members of the cluster", err) {
		return nil
	}
	for _, m := range own.Members {
		as := "is a member"
		switch {
		case m.Leader:
			as = "is the member that leads"
		case m.Joining:
			as = "is joining, and has no vote yet"
		}
		list = append(list, cmp.Or(m.Name, "A server")+" at "+m.Address+" "+as+".")
	}
	if own.Behind > 0 {
		list = append(list, "This server has yet to take in "+report.Count(int(own.Behind), "entry")+" of the log of the members.")
	}
	return append(list, own.Problems...)
}

// health lists problems: lint findings, registrations that are not active, webhooks that are not
// called. others are sentences about servers.
func (s *seen) health(ctx context.Context, others []string) *report.Document {
	compiled := s.compile()
	found := s.lint(ctx, compiled)
	f := &report.Document{Title: "Health"}
	href := func(kind, name string) string { return links.Entry(kind, name) }
	for i := range found.Findings {
		one := &found.Findings[i]
		finding := one.At("", 0, 0)
		finding.Href = href(one.Object.Kind, one.Object.Name)
		f.Findings = append(f.Findings, finding)
	}
	servers := map[string]*server{}
	waiting := 0
	for i := range s.states {
		st := &s.states[i]
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
				add("warning", "not active", "The server "+r.Name+" does not use its stored version yet.")
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
	var idle, busy []string
	for _, d := range registration.Sources() {
		for _, e := range compiled.Entries(d.Source) {
			key, ok := statOf(e)
			if !ok || s.counts == nil {
				continue
			}
			if _, called := s.counts[key]; called {
				busy = append(busy, e.String()+": "+s.counts.text(key, s.window))
			} else {
				idle = append(idle, e.String())
			}
		}
	}
	levels := map[report.Level]int{}
	for i := range f.Findings {
		levels[f.Findings[i].Level]++
	}
	if f.Blind = s.blind(); f.Blind != "" {
		f.Blind += ": nothing is known of their health."
	} else {
		// Without registrations, the numbers would look like a server that has none.
		f.Sums = []report.Sum{{Name: "errors", N: levels[report.Error]}, {Name: "warnings", N: levels[report.Warning]}, {Name: "notes", N: levels[report.Note]},
			{Name: "registrations", N: len(s.objects)}}
		if len(s.hidden) > 0 {
			f.Blind = "Nothing was found in what you may read."
		}
	}
	if s.states != nil {
		f.Sums = append(f.Sums, report.Sum{Name: "not active everywhere", N: waiting}, report.Sum{Name: "servers", N: len(servers)})
	}
	slices.SortStableFunc(f.Findings, func(a, b report.Finding) int {
		return slices.Index(report.Levels, a.Level) - slices.Index(report.Levels, b.Level)
	})
	var names []string
	for _, name := range sorted(servers) {
		names = append(names, servers[name].String())
	}
	names = append(names, others...)
	f.Parts = []report.Part{{Heading: "Webhooks and policies", Items: head(busy)}, {Heading: "Never matched since the server started", Items: head(idle)},
		{Heading: "Servers", Items: names}, {Heading: "Storage", Items: s.metrics.storage()}, {Heading: "Not allowed, or not there", Items: s.unseen()}, {Heading: "Not seen", Items: []string{"the services, workloads and roles behind the webhooks: gatehouse lint reads them"}}}
	return f
}

// server is a server and the registrations that it uses.
type server struct {
	name, address string
	// registrations counts the registrations of the server, late counts the outdated ones, and
	// newest is the newest revision.
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

// String describes the registrations of the server.
func (s *server) String() string {
	text := s.name
	if s.address != "" {
		text += " at " + s.address
	}
	text += " uses " + report.Count(s.registrations, "registration")
	if s.newest > 0 {
		text += fmt.Sprintf(", of revisions up to %d", s.newest)
	}
	if s.late > 0 {
		text += fmt.Sprintf("; %d of them in an older version than the stored one", s.late)
	}
	return text
}

// maxListed bounds the sentences of a part.
const maxListed = 200

func head(list []string) []string {
	if len(list) > maxListed {
		return append(slices.Clone(list[:maxListed]), fmt.Sprintf("and %d more", len(list)-maxListed))
	}
	return list
}
