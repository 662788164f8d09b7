package pages

import (
	"strings"
)

// Object is an object, with who set which line of it.
type Object struct {
	Title string
	// Waits are what the object waits for, in sentences.
	Waits []string
	Lines []Line
	// Notes say what the colours do not show, and Unknown what is not known.
	Notes, Unknown []string
	// Requests are the traces of the requests about it, if Traced.
	Requests []Summary
	Traced   bool
}

// Line is a line of an object in YAML. By names who set it; empty for the user, or when nobody knows.
type Line struct{ Text, By, Trace string }

// colours is how many there are for those who set lines.
const colours = 8

// OfObject returns an object with its lines in the colours of those who set them.
func OfObject(o Object, links Links) View {
	type drawnLine struct {
		Line
		Number int
		Colour int
		First  bool
		Href   string
	}
	type key struct {
		Colour int
		By     string
	}
	var keys []key
	numbers := map[string]int{}
	lines := make([]drawnLine, len(o.Lines))
	for i, l := range o.Lines {
		d := drawnLine{Line: l, Number: i + 1, First: l.By != "" && (i == 0 || o.Lines[i-1].By != l.By)}
		if l.Trace != "" {
			d.Href = links.trace(l.Trace)
		}
		if l.By != "" {
			n, ok := numbers[l.By]
			if !ok {
				n = len(numbers) % colours
				numbers[l.By] = n
				keys = append(keys, key{n, l.By})
			}
			d.Colour = n
		}
		lines[i] = d
	}
	return View{Title: o.Title, template: "object", data: struct {
		Object
		Drawn []drawnLine
		Keys  []key
		List  any
	}{o, lines, keys, OfSummaries(o.Requests, links).data}, markdown: func(m *markdown) {
		for _, text := range o.Waits {
			m.item("%s", code(text))
		}
		m.end()
		m.head("line", "set by")
		for _, l := range o.Lines {
			if l.By != "" {
				m.row(code(strings.TrimSpace(l.Text)), code(l.By))
			}
		}
		m.end()
	}}
}
