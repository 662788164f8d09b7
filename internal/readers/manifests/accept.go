package manifests

import (
	"bytes"
	"regexp"
)

// Acceptance is a comment in a file that accepts a finding:
//
//	# gatehouse: accept RULE: REASON
//
// In the first lines of an object, up to metadata, it applies to the whole object. Elsewhere it
// applies to its line or, if it is alone on its line, to the next line.
type Acceptance struct {
	File string
	Line int
	// Rule is the rule of the finding. Reason is empty if the comment has none.
	Rule, Reason string

	// from and to are the first and last line to which it applies.
	from, to int
}

// Covers reports whether the comment applies to a line of its file.
func (a *Acceptance) Covers(line int) bool { return a.from <= line && line <= a.to }

// heading matches the first lines of an object.
var heading = regexp.MustCompile(`^(apiVersion|kind|metadata):`)

var acceptance = regexp.MustCompile(`(?:^|\s)#\s*gatehouse:\s*accept\s+([\w./-]+)\s*(?::\s*(.*?)\s*)?$`)

// acceptances returns the comments of a document that accept findings.
func acceptances(file string, p part) []Acceptance {
	if !bytes.Contains(p.text, []byte("gatehouse:")) {
		return nil
	}
	var list []Acceptance
	first := p.line + skipped(p.text)
	last := p.line + bytes.Count(p.text, []byte("\n"))
	line := p.line - 1
	about := func(a *Acceptance, line int, text []byte) {
		a.from, a.to = line, line
		if line == first || heading.Match(text) {
			a.from, a.to = first, last
		}
	}
	// waiting counts the comments that apply to the next line with content.
	waiting := 0
	for text := range bytes.Lines(p.text) {
		line++
		content := bytes.TrimSpace(text)
		own := len(content) == 0 || content[0] == '#'
		if !own {
			for ; waiting > 0; waiting-- {
				about(&list[len(list)-waiting], line, text)
			}
		}
		m := acceptance.FindSubmatch(bytes.TrimRight(text, "\r\n"))
		if m == nil {
			continue
		}
		// It applies to nothing until there is a line with content.
		a := Acceptance{File: file, Line: line, Rule: string(m[1]), Reason: string(m[2]), to: -1}
		if own {
			waiting++
		} else {
			about(&a, line, text)
		}
		list = append(list, a)
	}
	return list
}
