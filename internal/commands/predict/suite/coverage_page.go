package suite

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
	"github.com/gatehouse-dev/gatehouse/internal/readers/view"
)

// Document shows the coverage to people: the share of each kind, and the gaps of each policy. A page also shows the
// source of each file, with expressions coloured by their coverage.
func (c *Coverage) Document() *view.Document {
	taken, all := c.Total()
	kinds := view.Table{Columns: view.Columns("what", "taken", "of", "%")}
	for _, s := range c.Shares() {
		kinds.Add(s.Kind, s.Taken, s.All, Percent(s.Taken, s.All))
	}
	d := &view.Document{Title: fmt.Sprintf("Coverage of admission: %d %%", Percent(taken, all)), Blocks: []view.Block{
		view.Note("Coverage: %d %%, %d of %d ways were taken.", Percent(taken, all), taken, all), kinds,
		view.Source{Key: []view.Mark{{Text: "both ways", Class: "all"}, {Text: "one way", Class: "some"}, {Text: "never", Class: "none"}}},
	}}
	for items := c.Items; len(items) > 0; {
		n := 1
		for n < len(items) && items[n].File == items[0].File {
			n++
		}
		d.Blocks = append(d.Blocks, ofFile(items[:n])...)
		items = items[n:]
	}
	return d
}

// ofFile shows the items of a file.
func ofFile(items []*Covered) []view.Block {
	var list view.Items
	taken, all := 0, 0
	places := map[string]int{}
	var shares [][2]int
	for _, i := range items {
		at, known := places[i.Owner]
		if !known {
			at = len(list)
			places[i.Owner], list, shares = at, append(list, view.Item{Name: i.Owner}), append(shares, [2]int{})
		}
		t, a := i.Ways()
		taken, all = taken+t, all+a
		shares[at][0], shares[at][1] = shares[at][0]+t, shares[at][1]+a
		for _, line := range i.missing() {
			list[at].Inside = append(list[at].Inside, view.Note("%s", line))
		}
	}
	for at, s := range shares {
		list[at].Verdict = view.Mark{Text: fmt.Sprintf("%d %% (%d of %d)", Percent(s[0], s[1]), s[0], s[1]), Class: map[string]view.Class{"none": view.Bad, "some": view.Warning, "all": view.Good}[classOf(s[0], s[1])]}
		list[at].Open = true
	}
	blocks := []view.Block{view.Heading(fmt.Sprintf("%s: %d %%", items[0].File, Percent(taken, all)))}
	if lines := paint(items); lines != nil {
		blocks = append(blocks, view.Source{Lines: lines})
	}
	return append(blocks, list)
}

// The classes, worst first.
var classes = []string{"none", "some", "all"}

func classOf(taken, all int) string {
	switch taken {
	case 0:
		return "none"
	case all:
		return "all"
	}
	return "some"
}

// worse returns the worse of two classes; the empty class is the best.
func worse(a, b string) string {
	if i := slices.Index(classes, a); a != "" && (b == "" || i < slices.Index(classes, b)) {
		return a
	}
	return b
}

// paint colours the source of the file of some items; nil if it cannot be read.
func paint(items []*Covered) []view.SourceLine {
	data, err := files.Read(items[0].File, files.Configuration)
	if err != nil || !utf8.Valid(data) {
		return nil
	}
	source := string(data)
	begins := []int{0}
	for i := range len(source) {
		if source[i] == '\n' && i+1 < len(source) {
			begins = append(begins, i+1)
		}
	}
	lines := make([]view.SourceLine, len(begins))
	// paints are the colours, and painted the number of the colour of each byte, from 1.
	var paints []view.Segment
	painted := make([]int, len(source))
	for _, i := range items {
		if i.Line < 1 || i.Line > len(begins) {
			continue
		}
		line := &lines[i.Line-1]
		line.NumberClass = worse(classOf(i.Ways()), line.NumberClass)
		line.Title = strings.TrimPrefix(line.Title+"; ", "; ") + fmt.Sprintf("%s of %s: %s", i.Field, i.Owner, i.State)
		places := manifests.Align(source, i.Line, i.column, i.Text)
		if places == nil {
			continue
		}
		at := 0
		for _, s := range i.segments() {
			paints = append(paints, s)
			for k := range len(s.Text) {
				if s.Class != "" && places[at+k] >= 0 {
					painted[places[at+k]] = len(paints)
				}
			}
			at += len(s.Text)
		}
	}
	for n, begin := range begins {
		end := len(source)
		if n+1 < len(begins) {
			end = begins[n+1]
		}
		line := &lines[n]
		for text := strings.TrimRight(source[begin:end], "\r\n"); text != ""; {
			of, k := painted[begin], 1
			for k < len(text) && painted[begin+k] == of {
				k++
			}
			part := view.Segment{Text: text[:k]}
			if of > 0 {
				part.Class, part.Title = paints[of-1].Class, paints[of-1].Title
			}
			line.Segments = append(line.Segments, part)
			text, begin = text[k:], begin+k
		}
	}
	return lines
}

// segments splits the text of an expression where its decisions begin.
func (c *Covered) segments() []view.Segment {
	branches := slices.DeleteFunc(slices.Clone(c.Branches), func(b *Branch) bool { return b.begin < 0 })
	slices.SortStableFunc(branches, func(a, b *Branch) int { return cmp.Compare(a.begin, b.begin) })
	part := view.Segment{Class: "", Title: ""}
	switch {
	case c.hits == 0:
		part = view.Segment{Class: "none", Title: "never reached"}
	case len(branches) > 0:
	case c.Errors == c.hits:
		part = view.Segment{Class: "none", Title: "only ever in error"}
	default:
		part = view.Segment{Class: "all", Title: "reached"}
	}
	var list []view.Segment
	last := 0
	for i, b := range branches {
		ways := 0
		for _, count := range []int{b.True, b.False} {
			if count > 0 {
				ways++
			}
		}
		next := view.Segment{Class: classOf(ways, 2), Title: fmt.Sprintf("%s: %d times true, %d times false", b.Text, b.True, b.False)}
		if i > 0 && branches[i-1].begin == b.begin {
			// Decisions that begin at one position share its colour.
			next.Class, next.Title = worse(part.Class, next.Class), part.Title+"; "+next.Title
		}
		if b.begin > last {
			part.Text = c.Text[last:b.begin]
			list = append(list, part)
			last = b.begin
		}
		part = next
	}
	part.Text = c.Text[last:]
	return append(list, part)
}
