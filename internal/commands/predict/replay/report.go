package replay

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/auditreport"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/requestlog"
	"github.com/gatehouse-dev/gatehouse/internal/kit/emulation"
)

// Bounds of a report.
const (
	maxGroups   = 500
	maxExamples = 3
	maxShares   = 10
	// maxNames bounds the names that are counted for one group.
	maxNames = 2000
	maxText  = 2000
	// maxAllExamples bounds the examples of all groups together.
	maxAllExamples = 100_000
)

// Report lists the differences. Its JSON is stable: fields are only ever added. Two runs over the same input produce
// the same report.
type Report struct {
	APIVersion        string           `json:"apiVersion"`
	Kind              string           `json:"kind"`
	KubernetesVersion string           `json:"kubernetesVersion"`
	Input             requestlog.Count `json:"input"`
	// VersionNote is set if requests are evaluated as by another release than the cluster's; empty otherwise.
	VersionNote string `json:"versionNote,omitempty"`
	// Judged is the number of requests evaluated, and Changed the number of requests among them with a changed verdict.
	Judged  int `json:"judged"`
	Changed int `json:"changed"`
	// Changes counts the changed requests by kind of change.
	Changes map[Change]int `json:"changes,omitempty"`
	// Before and After count the verdicts of the baseline, and with the change.
	Before Tally `json:"before"`
	After  Tally `json:"after"`
	// Undecided counts evaluated requests whose verdict may differ, because a policy or webhook selects by unknown
	// labels of their namespaces. Unknown lists these policies and webhooks, most frequent first.
	Undecided int        `json:"undecided,omitempty"`
	Unknown   []*Unknown `json:"unknown,omitempty"`
	// Groups are the changes, most severe and largest first. MoreGroups and MoreRequests count the groups left out and
	// their requests.
	Groups       []*Group `json:"groups"`
	MoreGroups   int      `json:"moreGroups,omitempty"`
	MoreRequests int      `json:"moreRequests,omitempty"`
	// Recorded compares the recorded responses with the baseline.
	Recorded Recorded `json:"recorded"`
	// Days counts the requests by the day on which they were made, in UTC.
	Days []*Day `json:"days,omitempty"`
	// Policies lists the policies, webhooks and plugins that rejected requests.
	Policies []*Policy `json:"policies,omitempty"`
	Notes    []string  `json:"notes,omitempty"`
}

// Gate is a condition that makes a replay fail.
type Gate string

// The gates.
const (
	// Rejects: a request is newly rejected.
	Rejects Gate = "rejected"
	// ChangesAny: a request has another verdict, or another object.
	ChangesAny Gate = "changed"
	// DiffersAny: a request differs in any way, or may differ.
	DiffersAny Gate = "any"
)

// Fails reports whether the report fails a gate. It never fails the empty gate.
func (r *Report) Fails(g Gate) bool {
	switch g {
	case Rejects:
		return r.Changes[NewlyRejected] > 0
	case ChangesAny:
		return r.Changes[NewlyRejected]+r.Changes[NewlyAllowed]+r.Changes[OtherRejection]+r.Changes[OtherObject] > 0
	case DiffersAny:
		return r.Changed+r.Undecided > 0
	}
	return false
}

// Tally counts verdicts.
type Tally struct {
	Allowed  int `json:"allowed"`
	Rejected int `json:"rejected"`
	// Warned counts requests with warnings.
	Warned int `json:"warned"`
	// Cost is the total cost of all CEL expressions, MaxCost the highest cost of one request, and WorstSeconds the
	// longest time that the webhooks of one request can take.
	Cost         uint64  `json:"cost"`
	MaxCost      uint64  `json:"maxCost"`
	WorstSeconds float64 `json:"worstSeconds"`
}

func (t *Tally) add(v *verdict) {
	if v.allowed {
		t.Allowed++
	} else {
		t.Rejected++
	}
	if len(v.warnings) > 0 {
		t.Warned++
	}
	t.Cost += v.cost
	t.MaxCost, t.WorstSeconds = max(t.MaxCost, v.cost), max(t.WorstSeconds, v.worst.Seconds())
}

// Recorded compares recorded responses with the verdicts of the baseline.
type Recorded struct {
	// Compared counts the requests with a recorded response, and Differ the requests among them with another verdict.
	Compared int      `json:"compared"`
	Differ   int      `json:"differ"`
	Groups   []*Group `json:"groups,omitempty"`
	// Without counts the requests of recordings without a response.
	Without int `json:"without,omitempty"`
}

// Group is a set of requests whose verdicts changed in the same way.
type Group struct {
	Change Change `json:"change"`
	// By names the causes of the change: policies, webhooks or plugins, or the fields of an object.
	By    []string `json:"by"`
	Count int      `json:"count"`
	// Namespaces, Users and Resources list the names with the most requests, and a last entry for all others.
	Namespaces []Share `json:"namespaces,omitempty"`
	Users      []Share `json:"users,omitempty"`
	Resources  []Share `json:"resources,omitempty"`
	Days       []Share `json:"days,omitempty"`
	// Examples are the first requests.
	Examples []*Example `json:"examples"`

	namespaces, users, resources, days map[string]int
}

// Share is the number of a group's requests with the same name.
type Share = auditreport.Share

// Example is a request of a group.
type Example struct {
	Request string    `json:"request"`
	Place   string    `json:"place,omitempty"`
	ID      string    `json:"id,omitempty"`
	Time    time.Time `json:"time,omitzero"`
	// Before and After are the messages, or the differing values.
	Before []string `json:"before,omitempty"`
	After  []string `json:"after,omitempty"`
}

// Judged is a request with a changed verdict.
type Judged struct {
	Change Change   `json:"change"`
	By     []string `json:"by"`
	*Example
}

// Day counts the requests of a day.
type Day struct {
	Date           string `json:"date"`
	Requests       int    `json:"requests"`
	RejectedBefore int    `json:"rejectedBefore"`
	RejectedAfter  int    `json:"rejectedAfter"`
	Changed        int    `json:"changed"`
}

// Policy counts the rejections by one policy, webhook or plugin.
type Policy struct {
	Name           string `json:"name"`
	RejectedBefore int    `json:"rejectedBefore"`
	RejectedAfter  int    `json:"rejectedAfter"`
}

// gathering builds a report from verdicts, in the order of requests.
type gathering struct {
	*Report
	options *Options
	// examples is the number of examples in all groups.
	examples int
	groups   map[string]*Group
	recorded map[string]*Group
	days     map[string]*Day
	policies map[string]*Policy
	unknown  map[string]*Unknown
}

func newGathering(o *Options) *gathering {
	return &gathering{
		Report:  &Report{APIVersion: requestlog.APIVersion, Kind: "ReplayReport", KubernetesVersion: emulation.Behaves("v" + emulation.Release), VersionNote: o.VersionNote, Changes: map[Change]int{}, Groups: []*Group{}},
		options: o,
		groups:  map[string]*Group{}, recorded: map[string]*Group{}, days: map[string]*Day{}, policies: map[string]*Policy{}, unknown: map[string]*Unknown{},
	}
}

// maxKept bounds the groups and names that are counted before the largest are chosen.
const maxKept = 20_000

// add adds the verdicts on a request.
func (g *gathering) add(q *requestlog.Entry, before, after *verdict, d *difference) {
	g.Judged++
	g.Before.add(before)
	g.After.add(after)
	g.compare(q, before)
	var day *Day
	if !q.Time.IsZero() {
		date := q.Time.UTC().Format(time.DateOnly)
		if day = g.days[date]; day == nil && len(g.days) < maxNames {
			day = &Day{Date: date}
			g.days[date] = day
		}
	}
	if day != nil {
		day.Requests++
		if !before.allowed {
			day.RejectedBefore++
		}
		if !after.allowed {
			day.RejectedAfter++
		}
		if d != nil {
			day.Changed++
		}
	}
	for _, name := range names(before.by) {
		if p := g.policy(name); p != nil {
			p.RejectedBefore++
		}
	}
	for _, name := range names(after.by) {
		if p := g.policy(name); p != nil {
			p.RejectedAfter++
		}
	}
	if d == nil {
		return
	}
	g.Changed++
	g.Changes[d.change]++
	if g.options.Each != nil {
		g.options.Each(&Judged{d.change, d.by, exampleOf(q, d)})
	}
	if !g.into(g.groups, q, d) {
		g.MoreRequests++
	}
}

func (g *gathering) policy(name string) *Policy {
	p := g.policies[name]
	if p == nil && len(g.policies) < maxKept {
		p = &Policy{Name: name}
		g.policies[name] = p
	}
	return p
}

// compare compares a verdict of the baseline with the recorded response.
func (g *gathering) compare(q *requestlog.Entry, v *verdict) {
	r := q.Response
	if r == nil {
		if _, existing := g.options.Source.(*Existing); !existing {
			g.Recorded.Without++
		}
		return
	}
	g.Recorded.Compared++
	if r.Allowed == v.allowed {
		return
	}
	g.Recorded.Differ++
	d := &difference{change: NewlyRejected, by: names(v.by), before: []string{"recorded: allowed"}, after: []string{v.message}}
	if !r.Allowed {
		d = &difference{change: NewlyAllowed, by: []string{"a step that was not replayed"}, before: []string{"recorded: " + cmp.Or(r.Message, "rejected")}}
	}
	g.into(g.recorded, q, d)
}

// into adds a difference to its group. It returns false if there are too many groups.
func (g *gathering) into(groups map[string]*Group, q *requestlog.Entry, d *difference) bool {
	key := string(d.change) + "\x00" + strings.Join(d.by, "\x00")
	o := groups[key]
	if o == nil {
		if len(groups) >= maxKept {
			return false
		}
		o = &Group{Change: d.change, By: d.by, namespaces: map[string]int{}, users: map[string]int{}, resources: map[string]int{}, days: map[string]int{}}
		groups[key] = o
	}
	o.Count++
	resource := q.Resource.Resource
	if q.Subresource != "" {
		resource += "/" + q.Subresource
	}
	if q.Resource.Group != "" {
		resource += "." + q.Resource.Group
	}
	for _, c := range []struct {
		in   map[string]int
		name string
	}{{o.namespaces, cmp.Or(q.Namespace, "(none)")}, {o.users, cmp.Or(q.User.Username, "(none)")}, {o.resources, resource}} {
		if _, ok := c.in[c.name]; ok || len(c.in) < maxNames {
			c.in[c.name]++
		}
	}
	if !q.Time.IsZero() && len(o.days) < maxNames {
		o.days[q.Time.UTC().Format(time.DateOnly)]++
	}
	if n := len(o.Examples); n < maxExamples || n < g.options.Examples && g.examples < maxAllExamples {
		o.Examples = append(o.Examples, exampleOf(q, d))
		g.examples++
	}
	return true
}

func exampleOf(q *requestlog.Entry, d *difference) *Example {
	quoting := quotingOf(q)
	return &Example{Request: q.Title(), Place: q.Place, ID: q.ID, Time: q.Time, Before: cutAll(d.before, quoting), After: cutAll(d.after, quoting)}
}

// cutAll redacts credentials from texts with quoting, and then shortens them.
func cutAll(list []string, quoting func(string) string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		s = quoting(s)
		if len(s) > maxText {
			s = strings.ToValidUTF8(s[:maxText], "") + " ..."
		}
		out[i] = s
	}
	return out
}

// shares returns the largest counts, and the sum of the rest.
func shares(counts map[string]int) []Share {
	list := make([]Share, 0, len(counts))
	for name, count := range counts {
		list = append(list, Share{Name: name, Count: count})
	}
	slices.SortFunc(list, func(a, b Share) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name)) })
	if len(list) <= maxShares {
		return list
	}
	others := 0
	for _, s := range list[maxShares-1:] {
		others += s.Count
	}
	return append(list[:maxShares-1], Share{Name: "(others)", Count: others})
}

// inOrder returns the groups, most severe and largest first.
func inOrder(groups map[string]*Group) []*Group {
	list := slices.Collect(maps.Values(groups))
	for _, o := range list {
		o.Namespaces, o.Users, o.Resources = shares(o.namespaces), shares(o.users), shares(o.resources)
		for _, date := range slices.Sorted(maps.Keys(o.days)) {
			o.Days = append(o.Days, Share{Name: date, Count: o.days[date]})
		}
	}
	slices.SortFunc(list, func(a, b *Group) int {
		return cmp.Or(cmp.Compare(slices.Index(Changes, a.Change), slices.Index(Changes, b.Change)), cmp.Compare(b.Count, a.Count),
			cmp.Compare(strings.Join(a.By, "\x00"), strings.Join(b.By, "\x00")))
	})
	return list
}

// finish completes the report.
func (g *gathering) finish(count *requestlog.Count) *Report {
	g.Input = *count
	g.Groups = inOrder(g.groups)
	if len(g.Groups) > maxGroups {
		for _, o := range g.Groups[maxGroups:] {
			g.MoreRequests += o.Count
		}
		g.MoreGroups, g.Groups = len(g.Groups)-maxGroups, g.Groups[:maxGroups]
	}
	g.Recorded.Groups = inOrder(g.recorded)
	g.Recorded.Groups = g.Recorded.Groups[:min(len(g.Recorded.Groups), maxGroups)]
	for _, date := range slices.Sorted(maps.Keys(g.days)) {
		g.Days = append(g.Days, g.days[date])
	}
	for _, o := range g.unknown {
		o.Namespaces = shares(o.namespaces)
		g.Unknown = append(g.Unknown, o)
	}
	slices.SortFunc(g.Unknown, func(a, b *Unknown) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.By, b.By)) })
	g.Policies = slices.Collect(maps.Values(g.policies))
	slices.SortFunc(g.Policies, func(a, b *Policy) int {
		return cmp.Or(cmp.Compare(max(b.RejectedBefore, b.RejectedAfter), max(a.RejectedBefore, a.RejectedAfter)), cmp.Compare(a.Name, b.Name))
	})
	return g.Report
}
