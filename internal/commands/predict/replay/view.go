package replay

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
	"github.com/gatehouse-dev/gatehouse/internal/readers/view"
)

// Bounds of a report on a terminal, so that it fits a few screens: groups with examples, groups in one line each, and
// policies.
const (
	fullGroups    = 10
	shortGroups   = 30
	shownPolicies = 20
)

// changeClasses are the classes of changes.
var changeClasses = map[Change]view.Class{NewlyRejected: view.Bad, NewlyAllowed: view.Good, OtherObject: view.Warning, OtherRejection: view.Warning}

// Write writes the report in a format: json, or a page or text for people. For jsonl, it writes the text that follows
// the lines, for people. If read is true, it includes statistics of the input.
func (r *Report) Write(out io.Writer, format string, read bool) error {
	switch format {
	case "json":
		return (&report.Document{Data: r}).Write(terminal.Exact(out), format)
	case "jsonl":
		return r.View(false, read).Format(out, "text")
	}
	return r.View(true, read).Format(out, format)
}

// View returns the report for people: with the groups of changed requests if groups is true, and with statistics of the
// input if read is true.
func (r *Report) View(groups, read bool) *view.Document {
	d := &view.Document{Title: fmt.Sprintf("%d of %d requests have another verdict", r.Changed, r.Judged)}
	if r.VersionNote != "" {
		d.Blocks = append(d.Blocks, view.Note("%s%s.", strings.ToUpper(r.VersionNote[:1]), r.VersionNote[1:]))
	}
	if groups && len(r.Groups) > 0 {
		d.Blocks = append(d.Blocks, r.changed())
	}
	if groups && r.MoreRequests > 0 {
		d.Blocks = append(d.Blocks, view.Note("%s more, in %s: -o json has no more of them", report.Count(r.MoreRequests, "request"), report.Count(r.MoreGroups, "group")))
	}
	var end view.Together
	if read {
		if len(r.Recorded.Groups) > 0 {
			recorded := view.Ranked{Full: fullGroups, Heading: "Recorded answers"}
			for _, g := range r.Recorded.Groups {
				what := "not as recorded: allowed then, rejected by the baseline"
				if g.Change == NewlyAllowed {
					what = "not as recorded: rejected then, allowed by the baseline"
				}
				recorded.Items = append(recorded.Items, g.item(what))
			}
			d.Blocks = append(d.Blocks, recorded)
		}
		end = append(append(end, r.rejecting()...), r.Input.View()...)
		for _, text := range r.Notes {
			end = append(end, view.Note("note: %s", text))
		}
		end = append(end, r.days()...)
		end = append(end, r.tallies())
		if r.Recorded.Compared > 0 {
			end = append(end, view.Note("%d of %s with a recorded answer have another one from the baseline", r.Recorded.Differ, report.Count(r.Recorded.Compared, "request")))
		}
	}
	if r.Recorded.Without > 0 {
		end = append(end, view.Note("%s without a recorded answer: the audit log of the same time, named too, has the answers", report.Count(r.Recorded.Without, "request")))
	}
	for _, u := range r.Unknown[:min(len(r.Unknown), shownPolicies)] {
		var names []string
		for _, s := range u.Namespaces {
			names = append(names, s.Name)
		}
		end = append(end, view.Note("unknown: %s decided without the labels of %s, which are unknown, and %s asks for them (%s)", report.Count(u.Count, "request"), strings.Join(names, ", "), u.By, u.First))
	}
	if r.Undecided > 0 {
		end = append(end, view.Note("%s may have another verdict: a snapshot of the cluster as --against has the labels of namespaces, and so do recordings of 'gatehouse record'", report.Count(r.Undecided, "request")))
	}
	end = append(end, view.Note("%d of %s decided differently; by Kubernetes %s", r.Changed, report.Count(r.Judged, "request"), r.KubernetesVersion))
	d.Blocks = append(d.Blocks, end)
	return d
}

// changed shows the groups. A terminal shows some of them.
func (r *Report) changed() view.Ranked {
	ranked := view.Ranked{Full: fullGroups, Short: shortGroups, Heading: "What changes"}
	for _, g := range r.Groups {
		ranked.Items = append(ranked.Items, g.item(g.Change.Text()))
	}
	if len(r.Groups) > fullGroups+shortGroups {
		rest, n := r.Groups[fullGroups+shortGroups:], 0
		for _, g := range rest {
			n += g.Count
		}
		ranked.Rest = append(ranked.Rest, fmt.Sprintf("%s more, in %s", report.Count(n, "request"), report.Count(len(rest), "group")))
	}
	if len(r.Groups) > fullGroups {
		ranked.Rest = append(ranked.Rest, "-o html and -o json have all of these groups with examples")
	}
	return ranked
}

// item shows a group with its namespaces, users, resources and examples.
func (g *Group) item(what string) view.Item {
	one := view.Item{Name: what, Remarks: []view.Mark{{Text: fmt.Sprintf("%d, by %s", g.Count, strings.Join(g.By, ", ")), Class: changeClasses[g.Change]}}, Folded: true}
	for _, part := range []struct {
		name string
		list []Share
	}{{"namespaces", g.Namespaces}, {"users", g.Users}, {"resources", g.Resources}} {
		var texts []string
		for _, s := range part.list {
			texts = append(texts, fmt.Sprintf("%s %d", s.Name, s.Count))
		}
		if len(texts) > 0 {
			one.Inside = append(one.Inside, view.Note("%s: %s", part.name, strings.Join(texts, ", ")))
		}
	}
	for _, e := range g.Examples {
		example := view.Item{Name: e.Request + " (" + e.Place + ")"}
		for _, text := range e.Before {
			example.Inside = append(example.Inside, view.Said{Text: "before: " + text})
		}
		for _, text := range e.After {
			example.Inside = append(example.Inside, view.Said{Text: "after: " + text})
		}
		one.Inside = append(one.Inside, view.Items{example})
	}
	return one
}

// days shows the requests of each day; a terminal has no room for them.
func (r *Report) days() []view.Block {
	if len(r.Days) == 0 {
		return nil
	}
	most := 1
	for _, day := range r.Days {
		most = max(most, day.Requests)
	}
	table := view.Table{Heading: "By day", Columns: view.Columns("day", "requests", "changed", "rejected before", "after", "all and changed requests"), Said: []string{}}
	for _, day := range r.Days {
		table.Add(day.Date, day.Requests, day.Changed, day.RejectedBefore, day.RejectedAfter, []view.Bar{view.NewBar(day.Requests, most, "plugin"), view.NewBar(day.Changed, most, "warn")})
	}
	return []view.Block{table}
}

// rejecting lists the policies and webhooks that reject more or fewer requests than before, largest difference first.
func (r *Report) rejecting() []view.Block {
	if len(r.Policies) == 0 {
		return nil
	}
	by := func(p *Policy) int {
		return max(p.RejectedAfter-p.RejectedBefore, p.RejectedBefore-p.RejectedAfter)
	}
	list := slices.Clone(r.Policies)
	slices.SortStableFunc(list, func(p, q *Policy) int { return cmp.Compare(by(q), by(p)) })
	table := view.Table{Heading: "Rejections by policy and webhook", Columns: view.Columns("policy or webhook", "before", "after", "before, and after"), Said: []string{}}
	most, same, requests, others := 1, 0, 0, 0
	for _, p := range list {
		most = max(most, p.RejectedBefore, p.RejectedAfter)
	}
	for i, p := range list {
		table.Add(view.Code(p.Name), p.RejectedBefore, p.RejectedAfter, []view.Bar{view.NewBar(p.RejectedBefore, most, "plugin"), view.NewBar(p.RejectedAfter, most, "bad")})
		switch {
		case by(p) == 0:
			same++
			requests += p.RejectedBefore
		case i < shownPolicies:
			table.Said = append(table.Said, fmt.Sprintf("%s rejects %d before, %d after", p.Name, p.RejectedBefore, p.RejectedAfter))
		default:
			others++
		}
	}
	if others > 0 {
		table.Said = append(table.Said, fmt.Sprintf("others reject more or fewer than before: %d of them", others))
	}
	if same > 0 {
		table.Said = append(table.Said, fmt.Sprintf("others reject as many as before: %d of them, %s", same, report.Count(requests, "request")))
	}
	return []view.Block{table}
}

// tallies compares the counts of verdicts.
func (r *Report) tallies() view.Table {
	table := view.Table{
		Heading: "All verdicts", Columns: view.Columns("verdicts", "allowed", "rejected", "with warnings", "cost", "highest cost", "webhooks at most"),
		Said: []string{fmt.Sprintf("rejected: %d before, %d after; with warnings: %d, %d; highest cost: %d, %d", r.Before.Rejected, r.After.Rejected, r.Before.Warned, r.After.Warned, r.Before.MaxCost, r.After.MaxCost)},
	}
	for i, t := range []*Tally{&r.Before, &r.After} {
		table.Add([]string{"before", "after"}[i], t.Allowed, t.Rejected, t.Warned, t.Cost, t.MaxCost, fmt.Sprintf("%v s", t.WorstSeconds))
	}
	return table
}
