package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/onsi/ginkgo/v2/types"
)

// outcome is the result of a run.
type outcome struct {
	passed []string
	// failed are the specs that failed, in groups by reason; "" has the specs without a reason.
	failed map[string][]failure
	// left are the specs that were not run, by reason; undone are the specs that skipped themselves, by their
	// message.
	left, undone map[string][]string
	// healed are specs that passed, although there is a reason why they fail.
	healed []string
	// others counts the specs that Try does not match. otherConformance counts the conformance tests among them,
	// which every conformant cluster passes.
	others, otherConformance int
	// serve are the flags of the server.
	serve []string
}

// late is the reason of a spec that was not started because of the time limit: ginkgo gives no reason.
const late = "the time limit of the run came first"

// failure is a spec that failed.
type failure struct{ spec, message string }

// judge sorts the specs of a report. With a focus, only the specs that match it were run.
func (c *choice) judge(specs types.SpecReports, focus string) *outcome {
	o := &outcome{failed: map[string][]failure{}, left: map[string][]string{}, undone: map[string][]string{}, serve: c.Serve}
	try := regexp.MustCompile(strings.Join(c.Try, "|"))
	narrow := regexp.MustCompile(focus)
	for _, s := range specs {
		name := s.FullText()
		if s.LeafNodeType != types.NodeTypeIt {
			if s.Failed() {
				o.failed[""] = append(o.failed[""], failure{s.LeafNodeType.String(), s.FailureMessage()})
			}
			continue
		}
		switch {
		case !try.MatchString(name):
			o.others++
			if strings.Contains(name, "[Conformance]") {
				o.otherConformance++
			}
		case reason(c.Leave, name) != "":
			why := reason(c.Leave, name)
			o.left[why] = append(o.left[why], name)
		case !narrow.MatchString(name):
			o.left["outside of -focus"] = append(o.left["outside of -focus"], name)
		case s.State == types.SpecStatePassed:
			o.passed = append(o.passed, name)
			if reason(c.Fail, name) != "" {
				o.healed = append(o.healed, name)
			}
		case s.State == types.SpecStateSkipped && s.Failure.Message == "":
			o.left[late] = append(o.left[late], name)
		case s.State == types.SpecStateSkipped || s.State == types.SpecStatePending:
			o.undone[sentence(s.Failure.Message)] = append(o.undone[sentence(s.Failure.Message)], name)
		default:
			why := reason(c.Fail, name)
			o.failed[why] = append(o.failed[why], failure{name, s.FailureMessage()})
		}
	}
	return o
}

// err returns an error if the run and specs.yaml disagree.
func (o *outcome) err() error {
	var errs []error
	if len(o.passed)+total(o.failed) == 0 {
		errs = append(errs, errors.New("no spec was run"))
	}
	if n := len(o.failed[""]); n > 0 {
		errs = append(errs, fmt.Errorf("%d specs fail without a reason in specs.yaml", n))
	}
	if n := len(o.healed); n > 0 {
		errs = append(errs, fmt.Errorf("%d specs pass although specs.yaml has a reason why they fail", n))
	}
	return errors.Join(errs...)
}

// print writes a summary of the outcome, and all disagreements with specs.yaml.
func (o *outcome) print(w io.Writer) {
	fmt.Fprintf(w, "passed %d, failed %d, skipped themselves %d, not tried %d\n", len(o.passed), total(o.failed), total(o.undone), total(o.left))
	for _, f := range o.failed[""] {
		fmt.Fprintf(w, "FAILED %s\n  %s\n", f.spec, strings.ReplaceAll(strings.TrimSpace(f.message), "\n", "\n  "))
	}
	for _, name := range o.healed {
		fmt.Fprintln(w, "PASSED", name)
	}
}

// document writes bench/results/conformance.md.
func (o *outcome) document() []byte {
	b := &bytes.Buffer{}
	tried := len(o.passed) + total(o.failed)
	fmt.Fprintf(b, `# Conformance

The specs of Kubernetes' end-to-end suite (%s, unchanged) that need no kubelet, run against

    gatehouse serve %s

The fake nodes stand in for a kubelet where a spec only waits for a pod to be ready or gone.
Everything else is as it is by default. This page is written from the report of

    cd bench/conformance && go run . -write ../results/conformance.md

and `+"`bench/conformance/specs.yaml`"+` has the choice of specs and the reasons.

| | specs |
|---|---|
| tried | %d |
| passed | %d |
| failed | %d |
| skipped by themselves | %d |
| not tried | %d |

The suite has %d more specs, which no expression of `+"`try`"+` in specs.yaml matches; %d of them are
conformance specs. Most of the %[8]d need the containers, networks or disks of real nodes. Which do not
was not looked at for each.

## Passed

| group | specs |
|---|---|
`, release, strings.Join(o.serve, " "), tried, len(o.passed), total(o.failed), total(o.undone), total(o.left), o.others, o.otherConformance)
	for _, g := range counts(o.passed) {
		fmt.Fprintf(b, "| %s | %d |\n", g.name, g.n)
	}
	fmt.Fprintf(b, "\n## Failed\n\n")
	if total(o.failed) == 0 {
		fmt.Fprintf(b, "None.\n\n")
	}
	for _, why := range slices.Sorted(maps.Keys(o.failed)) {
		fmt.Fprintf(b, "%s:\n\n", cmp.Or(why, "Without a known reason"))
		for _, f := range o.failed[why] {
			fmt.Fprintf(b, "- %s\n", f.spec)
		}
		fmt.Fprintln(b)
	}
	if total(o.undone) > 0 {
		fmt.Fprintf(b, "## Skipped by themselves\n\n")
		list(b, o.undone)
	}
	fmt.Fprintf(b, "## Not tried\n\n| reason | specs |\n|---|---|\n")
	for _, why := range slices.Sorted(maps.Keys(o.left)) {
		fmt.Fprintf(b, "| %s | %d |\n", why, len(o.left[why]))
	}
	return append(bytes.TrimSpace(b.Bytes()), '\n')
}

// list writes specs in groups.
func list(w io.Writer, groups map[string][]string) {
	for _, why := range slices.Sorted(maps.Keys(groups)) {
		fmt.Fprintf(w, "%s:\n\n", cmp.Or(why, "Without a reason"))
		for _, name := range groups[why] {
			fmt.Fprintf(w, "- %s\n", name)
		}
		fmt.Fprintln(w)
	}
}

// count is the number of specs of a group.
type count struct {
	name string
	n    int
}

// counts counts specs by the special interest group of Kubernetes that owns them.
func counts(specs []string) []count {
	n := map[string]int{}
	for _, s := range specs {
		sig, _, _ := strings.Cut(s, "]")
		n[strings.TrimPrefix(sig, "[")]++
	}
	var all []count
	for _, name := range slices.Sorted(maps.Keys(n)) {
		all = append(all, count{name, n[name]})
	}
	return all
}

// total is the number of specs in all groups.
func total[T any](groups map[string][]T) int {
	n := 0
	for _, g := range groups {
		n += len(g)
	}
	return n
}

// sentence returns the first line of a message, without the actual value, which may fill pages.
func sentence(message string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(message), "\n")
	first, _, _ = strings.Cut(first, ", got ")
	return first
}
