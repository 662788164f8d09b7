package replay

import (
	"html/template"
	"io"
	"strings"
)

// HTML writes a report as a page that needs nothing from elsewhere.
func (r *Report) HTML(w io.Writer) error {
	most, mostOfPolicy := 1, 1
	for _, d := range r.Days {
		most = max(most, d.Requests)
	}
	for _, p := range r.Policies {
		mostOfPolicy = max(mostOfPolicy, p.RejectedBefore, p.RejectedAfter)
	}
	return page.Execute(w, struct {
		*Report
		MostOfDay, MostOfPolicy int
	}{r, most, mostOfPolicy})
}

var page = template.Must(template.New("replay").Funcs(template.FuncMap{
	"width": func(n, most int) int { return n * 100 / max(most, 1) },
	"join":  func(list []string) string { return strings.Join(list, ", ") },
	"left":  func(r *Report) int { return r.Input.Left() },
}).Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Replay of requests</title><style>
body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:64em;padding:0 1em;color:#1c2430}
h1{font-size:1.6em}h2{margin-top:2em;font-size:1.25em}table{border-collapse:collapse;width:100%}th{text-align:left;font-weight:600}
td,th{padding:.2em .6em .2em 0;vertical-align:top}td.n,th.n{text-align:right;white-space:nowrap}
.bar{background:#e6e9ef;height:.9em;width:100%;position:relative}.bar i{position:absolute;left:0;top:0;bottom:0}
.was{background:#9aa5b8}.is{background:#c0392b}.all{background:#c9d6ea}.ch{background:#d98200}
details{border-top:1px solid #d5dae3;padding:.5em 0}summary{cursor:pointer}pre{white-space:pre-wrap;overflow-wrap:anywhere;background:#f4f6f9;padding:.5em;margin:.3em 0}
.k{display:inline-block;padding:0 .5em;border-radius:.6em;background:#e6e9ef;margin-right:.5em}.rejected{background:#f6cfca}.allowed{background:#cdeccd}.object,.rejection{background:#ffe7bd}
.note{color:#5a6475}
</style></head><body>
<h1>{{.Changed}} of {{.Judged}} requests have another verdict</h1>
{{with .VersionNote}}<p class="note">{{.}}</p>{{end}}
<table><tr><th></th><th class="n">allowed</th><th class="n">rejected</th><th class="n">with warnings</th><th class="n">cost</th><th class="n">highest cost</th><th class="n">webhooks at most</th></tr>
<tr><td>before</td><td class="n">{{.Before.Allowed}}</td><td class="n">{{.Before.Rejected}}</td><td class="n">{{.Before.Warned}}</td><td class="n">{{.Before.Cost}}</td><td class="n">{{.Before.MaxCost}}</td><td class="n">{{.Before.WorstSeconds}} s</td></tr>
<tr><td>after</td><td class="n">{{.After.Allowed}}</td><td class="n">{{.After.Rejected}}</td><td class="n">{{.After.Warned}}</td><td class="n">{{.After.Cost}}</td><td class="n">{{.After.MaxCost}}</td><td class="n">{{.After.WorstSeconds}} s</td></tr></table>
{{if .Groups}}<h2>What changes</h2>
{{range .Groups}}<details><summary><span class="k {{.Change}}">{{.Change.Text}}</span><b>{{.Count}}</b> {{join .By}}</summary>
<table><tr><th>namespaces</th><th>users</th><th>resources</th></tr><tr>
<td>{{range .Namespaces}}{{.Name}}: {{.Count}}<br>{{end}}</td><td>{{range .Users}}{{.Name}}: {{.Count}}<br>{{end}}</td><td>{{range .Resources}}{{.Name}}: {{.Count}}<br>{{end}}</td></tr></table>
{{range .Examples}}<p>{{.Request}} <span class="note">{{.Place}}</span></p>{{if .Before}}<pre>before: {{range .Before}}{{.}}
{{end}}</pre>{{end}}{{if .After}}<pre>after: {{range .After}}{{.}}
{{end}}</pre>{{end}}{{end}}</details>
{{end}}{{if .MoreRequests}}<p class="note">{{.MoreRequests}} more requests in {{.MoreGroups}} more groups.</p>{{end}}{{end}}
{{if .Days}}<h2>By day</h2><table><tr><th>day</th><th class="n">requests</th><th class="n">changed</th><th class="n">rejected before</th><th class="n">after</th><th style="width:40%"></th></tr>
{{$most := .MostOfDay}}{{range .Days}}<tr><td>{{.Date}}</td><td class="n">{{.Requests}}</td><td class="n">{{.Changed}}</td><td class="n">{{.RejectedBefore}}</td><td class="n">{{.RejectedAfter}}</td>
<td><div class="bar" title="requests, and those that change"><i class="all" style="width:{{width .Requests $most}}%"></i><i class="ch" style="width:{{width .Changed $most}}%"></i></div></td></tr>{{end}}</table>{{end}}
{{if .Policies}}<h2>Who rejects</h2><table><tr><th></th><th class="n">before</th><th class="n">after</th><th style="width:40%"></th></tr>
{{$most := .MostOfPolicy}}{{range .Policies}}<tr><td>{{.Name}}</td><td class="n">{{.RejectedBefore}}</td><td class="n">{{.RejectedAfter}}</td>
<td><div class="bar" title="before"><i class="was" style="width:{{width .RejectedBefore $most}}%"></i></div><div class="bar" title="after"><i class="is" style="width:{{width .RejectedAfter $most}}%"></i></div></td></tr>{{end}}</table>{{end}}
{{with .Recorded}}{{if .Compared}}<h2>What was recorded</h2><p>{{.Compared}} requests have a recorded answer. The verdict of the baseline is another one for {{.Differ}} of them.</p>
{{range .Groups}}<details><summary><b>{{.Count}}</b> {{if eq (print .Change) "rejected"}}allowed then, rejected by the baseline: {{join .By}}{{else}}rejected then, allowed by the baseline{{end}}</summary>
{{range .Examples}}<p>{{.Request}} <span class="note">{{.Place}}</span></p><pre>{{range .Before}}{{.}}
{{end}}{{range .After}}{{.}}
{{end}}</pre>{{end}}</details>{{end}}{{end}}{{end}}
<h2>What was read</h2><p>{{.Input.Requests}} requests were read, {{.Judged}} were judged by Kubernetes {{.KubernetesVersion}}.</p>
{{with .Input.LeftOut}}<table><tr><th class="n">left out</th><th>because</th><th>first</th></tr>{{range .}}<tr><td class="n">{{.Count}}</td><td>{{.Reason}}</td><td>{{.First}}</td></tr>{{end}}</table>{{end}}
{{with .Input.Other}}<table><tr><th class="n">no requests to judge</th><th></th><th>first</th></tr>{{range .}}<tr><td class="n">{{.Count}}</td><td>{{.Reason}}</td><td>{{.First}}</td></tr>{{end}}</table>{{end}}
{{range .Input.Problems}}<p>{{.}}</p>{{end}}{{range .Notes}}<p class="note">{{.}}</p>{{end}}
</body></html>
`))
