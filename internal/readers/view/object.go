package view

import (
	"fmt"
	"strings"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
)

// Source is a text in lines, each with its author or its meaning. Only pages draw it.
type Source struct {
	// Key explains the classes of the lines.
	Key   []Mark
	Lines []SourceLine
}

func (Source) block() {}

// SourceLine is a line of a Source. Class and NumberClass are the CSS classes of the line and of its
// number.
type SourceLine struct {
	Class, NumberClass, Title string
	Segments                  []Segment
	// By and Href identify the author of the line.
	By, Href string
}

// Segment is a part of a text in one colour.
type Segment struct{ Text, Class, Title string }

// Object is an object, with the author of each line.
type Object struct {
	Title string
	// Waits lists the initializers that the object waits for, in sentences.
	Waits []string
	Lines []ObjectLine
	// Notes add facts that the colours cannot express, and Unknown lists facts that are not known.
	Notes, Unknown []string
	// Requests are the traces of the requests about the object, if Traced.
	Requests []*trace.Record
	Traced   bool
}

// ObjectLine is a line of an object in YAML. By names the author of the line; empty for the user, or if the
// author is unknown.
type ObjectLine struct{ Text, By, Trace string }

// sourceColours is the number of colours of a Source: classes c0 to c7.
const sourceColours = 8

// OfObject draws an object whose lines have the colours of their authors.
func OfObject(o Object, links Links) *Document {
	d := &Document{Title: o.Title}
	for _, text := range o.Waits {
		d.Blocks = append(d.Blocks, Callout{Class: Warning, Head: strings.TrimSuffix(text, ".")})
	}
	numbers := map[string]Class{}
	source := Source{Lines: make([]SourceLine, len(o.Lines))}
	for i, l := range o.Lines {
		line := SourceLine{Segments: []Segment{{Text: l.Text}}}
		if l.By != "" {
			class, ok := numbers[l.By]
			if !ok {
				class = Class(fmt.Sprintf("c%d", len(numbers)%sourceColours))
				numbers[l.By] = class
				source.Key = append(source.Key, Mark{l.By, class})
			}
			line.Class = "set " + string(class)
			if i == 0 || o.Lines[i-1].By != l.By {
				line.By = l.By
				if l.Trace != "" {
					line.Href = links.trace(l.Trace)
				}
			}
		}
		source.Lines[i] = line
	}
	for _, text := range o.Notes {
		d.Blocks = append(d.Blocks, Note("%s", text))
	}
	d.Blocks = append(d.Blocks, source)
	if len(o.Unknown) > 0 {
		d.Blocks = append(d.Blocks, List{"Unknown", o.Unknown})
	}
	if o.Traced {
		d.Blocks = append(append(d.Blocks, Heading("Requests about it")), OfList(o.Requests, links).Blocks...)
	}
	return d
}
