package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

// differ writes the differences between the emulated releases.
func differ(w io.Writer, found map[string]*facts) {
	releases := append(slices.Clone(emulated), own)
	fmt.Fprintf(w, "\n### Served resources\n\nSubresources are served with their resource. A star marks a served resource.\n\n| resource | %s |\n|---|%s\n",
		strings.Join(releases, " | "), strings.Repeat("---|", len(releases)))
	all := map[string]bool{}
	for _, f := range found {
		maps.Copy(all, f.served)
	}
	for _, resource := range slices.Sorted(maps.Keys(all)) {
		version, name, _ := strings.Cut(resource, " ")
		if strings.Contains(name, "/") {
			continue
		}
		row, same := "", true
		for _, release := range releases {
			mark := " "
			if found[release].served[resource] {
				mark = "*"
			}
			same = same && found[release].served[resource] == found[own].served[resource]
			row += " " + mark + " |"
		}
		if !same {
			fmt.Fprintf(w, "| `%s` of `%s` |%s\n", name, version, row)
		}
	}
	fmt.Fprintf(w, "\n### Feature gates\n\nGates of which a stage or a default differs, a dash for a release that does not have the gate.\n\n| gate | %s |\n|---|%s\n",
		strings.Join(releases, " | "), strings.Repeat("---|", len(releases)))
	gates := map[string]bool{}
	for _, f := range found {
		for name := range f.gates {
			gates[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(gates)) {
		row, same := "", true
		for _, release := range releases {
			state := found[release].gates[name]
			same = same && state == found[own].gates[name]
			if state == "" {
				state = "-"
			}
			row += " " + state + " |"
		}
		if !same {
			fmt.Fprintf(w, "| `%s` |%s\n", name, row)
		}
	}
	fmt.Fprintf(w, "\n### CEL\n\n")
	for _, release := range releases[:len(releases)-1] {
		list := lacking(found[own].functions, found[release].functions)
		if len(list) == 0 {
			fmt.Fprintf(w, "- New expressions may call the same functions in %s and in %s.\n", release, own)
			continue
		}
		fmt.Fprintf(w, "- New expressions may not call in %s: `%s`.\n", release, strings.Join(list, "`, `"))
	}
}

// uncovered writes the differences between the real and the emulated release.
func uncovered(w io.Writer, release peer.Release, emulated, real *facts) {
	fmt.Fprintf(w, "\n### What emulation does not cover\n\nFound by comparing a real kube-apiserver %s with Gatehouse as %s. Both have the same feature gates on where they\nhave them, except for the listed gates.\n", release.Version, release.Minor)
	list := func(title string, one, other map[string]bool) {
		missing := lacking(one, other)
		if len(missing) == 0 {
			fmt.Fprintf(w, "\n%s: none.\n", title)
			return
		}
		fmt.Fprintf(w, "\n%s (%d):\n\n", title, len(missing))
		for _, group := range grouped(missing) {
			fmt.Fprintf(w, "- %s\n", group)
		}
	}
	list("Resources that only the emulated release serves", emulated.served, real.served)
	list("Resources that only the real release serves", real.served, emulated.served)
	fmt.Fprintf(w, "\nFeature gates with another stage or default, or that only one has:\n\n| gate | real | emulated |\n|---|---|---|\n")
	gates := map[string]bool{}
	for name := range emulated.gates {
		gates[name] = true
	}
	for name := range real.gates {
		gates[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(gates)) {
		a, b := real.gates[name], emulated.gates[name]
		if a != b {
			fmt.Fprintf(w, "| `%s` | %s | %s |\n", name, dash(a), dash(b))
		}
	}
	list("Fields that OpenAPI has only for the emulated release. Fields of a gate that is off are dropped, and others are not", emulated.fields, real.fields)
	list("Fields that OpenAPI has only for the real release", real.fields, emulated.fields)
	list("Functions of CEL that only the emulated release accepts in new expressions", emulated.functions, real.functions)
	list("Functions of CEL that only the real release accepts in new expressions", real.functions, emulated.functions)
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// grouped joins names with the same beginning in one line.
func grouped(names []string) []string {
	by := map[string][]string{}
	for _, name := range names {
		head, tail, ok := strings.Cut(name, " ")
		if !ok {
			if i := strings.LastIndex(name, "."); i > 0 && !strings.Contains(name, "(") {
				head, tail = name[:i], name[i+1:]
			}
		}
		if tail == "" {
			head, tail = "functions", name
		}
		by[head] = append(by[head], "`"+tail+"`")
	}
	var lines []string
	for _, head := range slices.Sorted(maps.Keys(by)) {
		if head == "functions" {
			lines = append(lines, strings.Join(by[head], ", "))
			continue
		}
		lines = append(lines, "`"+head+"`: "+strings.Join(by[head], ", "))
	}
	return lines
}
