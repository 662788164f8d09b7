package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/bench/internal/fieldrequests"
	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

// compareReleases sends all cases to a real kube-apiserver of each release since realFrom, then to Gatehouse as each
// release, and writes the differences between neighbouring releases to a file.
func compareReleases(ctx context.Context, l *lab, cases *regexp.Regexp, binaries, file, realFrom string) error {
	var real, emulated []neighbour
	for _, release := range peer.Releases {
		emulated = append(emulated, neighbour{Release: release})
	}
	first := slices.IndexFunc(peer.Releases, func(r peer.Release) bool { return r.Minor == realFrom })
	if first < 0 {
		return fmt.Errorf("--real-from: there is no release %q in %v", realFrom, peer.Releases)
	}
	for _, release := range peer.Releases[first:] {
		if first == len(peer.Releases)-1 {
			// A single release has no neighbour.
			break
		}
		program, err := peer.BuildRelease(ctx, ".", binaries, release)
		if err != nil {
			return err
		}
		real = append(real, neighbour{release, program})
	}
	var found [2]*runner
	for i, neighbours := range [][]neighbour{real, emulated} {
		r := &runner{
			lab:       &lab{binaries: l.binaries, dir: filepath.Join(l.dir, fmt.Sprint(i)), neighbours: neighbours},
			unsettled: map[string]bool{}, lacking: map[lack]bool{},
		}
		found[i] = r
		if neighbours == nil {
			continue
		}
		if err := os.MkdirAll(r.lab.dir, 0o700); err != nil {
			return err
		}
		if err := r.releases(ctx, cases); err != nil {
			return err
		}
		fmt.Printf("%d cases, %d requests to each release; the same answer of all releases to %d\n", r.tally.cases, r.tally.requests, r.tally.same)
		for _, text := range slices.Concat(r.tally.unexpected, r.tally.otherwise) {
			fmt.Println("the newest release does not answer as the case expects:", text)
		}
	}
	flags := "--releases " + file + " --real-from " + realFrom
	if only := cases.String(); only != "" {
		flags += " --run '" + only + "'"
	}
	return os.WriteFile(file, []byte(releasesPage(found[0], found[1], first, flags)), 0o644)
}

// releases sends the cases to servers of all releases.
func (r *runner) releases(ctx context.Context, only *regexp.Regexp) (err error) {
	if r.pair, err = r.lab.start(ctx, nil); err != nil {
		return err
	}
	servers := r.pair
	defer func() {
		if failed := servers.stop(); err == nil {
			err = failed
		}
	}()
	for _, s := range r.sessions() {
		served, err := servedBy(s.config)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		r.served = append(r.served, served)
	}
	for _, do := range []func(context.Context, *regexp.Regexp) error{r.fields, r.all, r.policies, r.plugins} {
		if err := do(ctx, only); err != nil {
			return err
		}
	}
	return nil
}

// fieldCase is the name of the case with a request for each field and CEL function.
const fieldCase = "fields"

// fields sends a dry run for each field of the kinds and each CEL function of the newest release.
func (r *runner) fields(ctx context.Context, only *regexp.Regexp) error {
	if !only.MatchString(fieldCase) {
		return nil
	}
	requests, err := fieldrequests.For(r.neighbours[len(r.neighbours)-1].config)
	if err != nil {
		return err
	}
	for _, s := range r.sessions() {
		// Pods of the namespace need it; no controller creates it here.
		account := step{method: http.MethodPost, path: "/api/v1/namespaces/default/serviceaccounts", body: namespaceObjects("default")[1]}
		a, err := s.send(ctx, account)
		if err != nil {
			return err
		}
		if a.Code != http.StatusCreated && a.Code != http.StatusConflict {
			return fmt.Errorf("%s: the service account of the namespace default: %d: %s", s.name, a.Code, show(a.Body))
		}
	}
	var steps []step
	for _, q := range requests {
		steps = append(steps, step{name: q.Title, method: http.MethodPost, path: q.Path + "?dryRun=All&fieldValidation=Strict", body: q.Object})
	}
	return r.run(ctx, fieldCase, steps)
}

// between returns the differences between the answers of two neighbouring releases; newer is the index of the second.
func between(newer int, a, b answer) []difference {
	differences := compare(a, b)
	for i := range differences {
		differences[i].Newer, differences[i].Codes = newer, [2]int{a.Code, b.Code}
	}
	return differences
}

// lack names a case with an object that only one of two neighbouring releases accepted. newer is the index of the second.
type lack struct {
	name  string
	newer int
}

// builds matches paths of pages that name the build or its insides.
var builds = regexp.MustCompile(`^/(version|debug|flagz|statusz|metrics|configz|\.well-known)\b`)

// leftOut reports whether a difference between two neighbouring releases says nothing of its own: it follows from a
// resource that only one of them serves or from an object that only one of them accepted, or is on a page about the build.
func (r *runner) leftOut(d difference, path string) bool {
	if r.neighbours == nil || builds.MatchString(path) {
		return r.neighbours != nil
	}
	in := lack{d.Case, d.Newer}
	creating, differs := strings.HasPrefix(d.Step, "creating "), false
	for _, resource := range resourcesOf(path) {
		differs = differs || r.served[d.Newer-1][resource] != r.served[d.Newer][resource]
	}
	if creating {
		r.lacking[in] = r.lacking[in] || d.Codes[0] != d.Codes[1]
		return differs
	}
	return differs || r.lacking[in]
}

// resourcesOf returns the resource of a path, as version and name, and its subresource.
func resourcesOf(path string) []string {
	path, _, _ = strings.Cut(path, "?")
	parts := strings.Split(strings.Trim(path, "/"), "/")
	version, rest := "", parts
	switch {
	case len(parts) > 2 && parts[0] == "api":
		version, rest = parts[1], parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		version, rest = parts[1]+"/"+parts[2], parts[3:]
	default:
		return nil
	}
	if len(rest) > 2 && rest[0] == "namespaces" && rest[2] != "status" && rest[2] != "finalize" {
		rest = rest[2:]
	}
	resources := []string{version + " " + rest[0]}
	if len(rest) > 2 {
		resources = append(resources, version+" "+rest[0]+"/"+rest[2])
	}
	return resources
}

// servedBy lists the resources and subresources of a server, as version and name.
func servedBy(config *rest.Config) (map[string]bool, error) {
	lists, err := fieldrequests.Served(config)
	if err != nil {
		return nil, err
	}
	served := map[string]bool{}
	for _, list := range lists {
		for _, r := range list.APIResources {
			served[list.GroupVersion+" "+r.Name] = true
		}
	}
	return served, nil
}

// effect is the kind of a difference between two releases.
type effect string

const (
	refused  effect = "refused by the newer release"
	accepted effect = "accepted by the newer release"
	coded    effect = "another code"
	warned   effect = "warning"
	field    effect = "field of an object"
	worded   effect = "message of a rejection"
	audited  effect = "audit annotation"
	other    effect = "other content"
)

var effects = []effect{refused, accepted, coded, warned, field, worded, audited, other}

// change is a difference between the answers of two releases to a request, by its effect.
type change struct {
	effect  effect
	newer   int
	request string
	// text has both values. Changes with equal texts are listed once.
	text string
}

// id identifies a change among the changes of other servers: verdicts by the request, since the messages may differ,
// and the others by their text.
func (c change) id() string {
	what := c.text
	if c.effect == refused || c.effect == accepted || c.effect == coded {
		what = c.request
	}
	return fmt.Sprint(c.newer, c.effect, what)
}

// changesOf turns the differences into changes. The differences of a request follow each other.
func changesOf(differences []difference) (all []change) {
	for len(differences) > 0 {
		first, n := differences[0], 1
		for n < len(differences) && differences[n].Case == first.Case && differences[n].Step == first.Step &&
			differences[n].Newer == first.Newer && differences[n].Codes == first.Codes {
			n++
		}
		all = append(all, changesOfOne(differences[:n])...)
		differences = differences[n:]
	}
	return all
}

// changesOfOne returns the changes of one request.
func changesOfOne(differences []difference) (all []change) {
	first := differences[0]
	older, newer := rejects(first.Codes[0]), rejects(first.Codes[1])
	add := func(e effect, text string) {
		c := change{e, first.Newer, plain(first.Case + ": " + first.Step), plain(text)}
		if !slices.Contains(all, c) {
			all = append(all, c)
		}
	}
	if first.Codes[0] != first.Codes[1] {
		e := coded
		switch {
		case newer && !older:
			e = refused
		case older && !newer:
			e = accepted
		}
		add(e, fmt.Sprintf("%s to %s", reason(first.Codes[0], differences, false), reason(first.Codes[1], differences, true)))
		return all
	}
	message := slices.ContainsFunc(differences, func(d difference) bool { return d.Path == "body.message" })
	for _, d := range differences {
		path := places.ReplaceAllString(strings.TrimPrefix(d.Path, "body."), "[]")
		values := path + ": " + brief(d.Kube) + " to " + brief(d.Gatehouse)
		switch {
		case d.Path == "warnings":
			before, after := list(d.Kube), list(d.Gatehouse)
			for _, w := range after {
				if !slices.Contains(before, w) {
					add(warned, "new: "+w)
				}
			}
			for _, w := range before {
				if !slices.Contains(after, w) {
					add(warned, "gone: "+w)
				}
			}
		case strings.HasPrefix(d.Path, "audit"):
			add(audited, values)
		case d.Path == "body", !strings.HasPrefix(d.Path, "body."):
			add(other, path+" of "+first.Step)
		case newer && d.Path == "body.message":
			add(worded, brief(d.Kube)+" to "+brief(d.Gatehouse))
		case newer && message:
			// The details repeat the message.
		case newer:
			add(worded, values)
		case strings.Contains(path, "managedFields"):
			add(field, "metadata.managedFields")
		default:
			add(field, values)
		}
	}
	return all
}

// rejects reports whether a code is an error. 0 is the code of an object that was created before the requests.
func rejects(code int) bool { return code >= http.StatusBadRequest }

// reason returns a code, and the message of a rejection.
func reason(code int, differences []difference, newer bool) string {
	if code == 0 {
		code = http.StatusCreated
	}
	text := fmt.Sprint(code)
	if !rejects(code) {
		return text
	}
	for _, d := range differences {
		value := d.Kube
		if newer {
			value = d.Gatehouse
		}
		if status, ok := value.(map[string]any); ok && d.Path == "body" {
			value = status["message"]
		}
		if message, ok := value.(string); ok && (d.Path == "body.message" || d.Path == "body") {
			return text + " " + brief(message)
		}
	}
	return text
}

var (
	// places are the indexes of lists in paths, and spaces the names that cases get in the order of the files.
	places = regexp.MustCompile(`\[\d+\]`)
	spaces = regexp.MustCompile(`\b(case|plugin|marker)(-[a-z]+)?-\d{3}\b`)
)

func plain(text string) string { return spaces.ReplaceAllString(text, "$1-N") }

// unmarked removes the end of a line of code, and what looks like a link, from a text.
var unmarked = strings.NewReplacer("`", "'", "](", "] (")

// brief returns the beginning of a text, or of a value in JSON, for a line of code in Markdown.
func brief(v any) string {
	const enough = 300
	whole, ok := v.(string)
	if !ok {
		whole = show(v)
	}
	text := []rune(strings.Join(strings.Fields(unmarked.Replace(whole)), " "))
	if len(text) > enough {
		return string(text[:enough]) + "..."
	}
	return string(text)
}

func list(v any) []string {
	lines, _ := v.([]string)
	return lines
}

// releasesPage returns the page with the differences of real and of emulated releases. The real ones begin with the
// release of index first. flags are the flags of the program.
func releasesPage(real, emulated *runner, first int, flags string) string {
	var b strings.Builder
	var names []string
	for _, r := range peer.Releases[first:] {
		names = append(names, strings.TrimPrefix(r.Version, "v"))
	}
	fmt.Fprintf(&b, `# Differences between releases of Kubernetes

<!-- Code generated by bench/differential; DO NOT EDIT. -->

    cd bench && go run ./differential %s

The same requests are sent to Gatehouse as each release from %s on (--emulated-version, --later-fields reject), and the answers
of neighbouring releases are compared: codes, warnings, statuses, objects and audit annotations. %d cases make %d requests to
each server; %d have the same answer in all releases.
`, flags, peer.Releases[0].Minor, emulated.tally.cases, emulated.tally.requests, emulated.tally.same)
	if len(names) > 1 {
		fmt.Fprintf(&b, "Of real kube-apiservers %s, with default flags, %d of %d requests have the same answer. The controller that writes\n"+
			"status.typeChecking of policies for them is of %s.\n",
			strings.Join(names, ", "), real.tally.same, real.tally.requests, names[len(names)-1])
	}
	b.WriteString("\n")
	b.WriteString("The table counts differences; a request can have several. \"Emulated too\" means that Gatehouse as the two releases differs in the same\n" +
		"way: for verdicts and codes in the same request, otherwise with the same text. Requests for a resource that one of the\n" +
		"two releases does not serve are left out.\n\n" +
		"| from, to | effect | real | emulated too | emulated only |\n|---|---|---|---|---|\n")
	of := [2][]change{changesOf(real.tally.unknown), changesOf(emulated.tally.unknown)}
	var ids [2]map[string]bool
	for i := range of[0] {
		of[0][i].newer += first
	}
	for i, changes := range of {
		ids[i] = map[string]bool{}
		for _, c := range changes {
			ids[i][c.id()] = true
		}
	}
	count := func(i, newer int, e effect) (all, both int) {
		for _, c := range of[i] {
			if c.newer == newer && c.effect == e {
				all++
				if ids[1-i][c.id()] {
					both++
				}
			}
		}
		return all, both
	}
	minor := func(i int) string { return peer.Releases[i].Minor }
	for newer := 1; newer < len(peer.Releases); newer++ {
		for _, e := range effects {
			all, both := count(0, newer, e)
			emulations, shared := count(1, newer, e)
			switch {
			case newer <= first && emulations > 0:
				fmt.Fprintf(&b, "| %s, %s | %s | not measured | | %d |\n", minor(newer-1), minor(newer), e, emulations)
			case all+emulations > 0:
				fmt.Fprintf(&b, "| %s, %s | %s | %d | %d | %d |\n", minor(newer-1), minor(newer), e, all, both, emulations-shared)
			}
		}
	}
	for newer := 1; newer < len(peer.Releases); newer++ {
		fmt.Fprintf(&b, "\n## From %s to %s\n", minor(newer-1), minor(newer))
		if newer > first {
			fmt.Fprintf(&b, "\nResources that only one of the real servers serves: %s\n", servedDifferently(real.served[newer-first-1], real.served[newer-first]))
		}
		fmt.Fprintf(&b, "\nResources that only one of the emulated releases serves: %s\n", servedDifferently(emulated.served[newer-1], emulated.served[newer]))
		for _, e := range effects {
			section(&b, minor(newer)+": "+string(e), of[0], newer, e, ids[1], "emulated too")
		}
		for _, e := range effects {
			onlyEmulated := slices.DeleteFunc(slices.Clone(of[1]), func(c change) bool { return ids[0][c.id()] })
			section(&b, minor(newer)+", only emulated: "+string(e), onlyEmulated, newer, e, nil, "")
		}
	}
	return b.String()
}

// servedDifferently lists resources with + if only the newer release serves them, and with - otherwise.
func servedDifferently(older, newer map[string]bool) string {
	var all []string
	for resource := range newer {
		if !older[resource] {
			all = append(all, "+`"+resource+"`")
		}
	}
	for resource := range older {
		if !newer[resource] {
			all = append(all, "-`"+resource+"`")
		}
	}
	slices.Sort(all)
	if len(all) == 0 {
		return "none."
	}
	return strings.Join(all, ", ")
}

// section lists the changes of an effect by their texts, with their number, one of the requests, and how many of them
// others have, too.
func section(b *strings.Builder, title string, changes []change, newer int, e effect, others map[string]bool, too string) {
	var texts []string
	requests, both := map[string][]string{}, map[string]int{}
	for _, c := range changes {
		if c.newer != newer || c.effect != e {
			continue
		}
		if requests[c.text] == nil {
			texts = append(texts, c.text)
		}
		requests[c.text] = append(requests[c.text], c.request)
		if others[c.id()] {
			both[c.text]++
		}
	}
	if len(texts) == 0 {
		return
	}
	slices.Sort(texts)
	fmt.Fprintf(b, "\n### %s\n\n", title)
	for _, text := range texts {
		all := requests[text]
		fmt.Fprintf(b, "- `%s`\n  - `%s`", text, strings.ReplaceAll(all[0], "`", "'"))
		if len(all) > 1 {
			fmt.Fprintf(b, " and %d more requests", len(all)-1)
		}
		if both[text] > 0 {
			fmt.Fprintf(b, "; %s: %d of %d", too, both[text], len(all))
		}
		b.WriteString("\n")
	}
}
