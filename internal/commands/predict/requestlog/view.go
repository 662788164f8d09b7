package requestlog

import (
	"fmt"

	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
	"github.com/gatehouse-dev/gatehouse/internal/readers/view"
)

// Sentences describes, in one sentence each, the requests left out and the problems of the input.
func (c *Count) Sentences() []string {
	var list []string
	for _, l := range c.LeftOut {
		list = append(list, fmt.Sprintf("left out: %d: %s (%s)", l.Count, l.Reason, l.First))
	}
	for _, l := range c.Other {
		list = append(list, fmt.Sprintf("not decided: %d: %s", l.Count, l.Reason))
	}
	for _, p := range c.Problems {
		list = append(list, "not read to the end: "+p)
	}
	if c.Backwards > 0 {
		list = append(list, report.Count(c.Backwards, "request")+" came earlier than the preceding request of the input")
	}
	return list
}

// View shows Sentences as a view.
func (c *Count) View() []view.Block {
	var list []view.Block
	for _, text := range c.Sentences() {
		list = append(list, view.Note("%s", text))
	}
	return list
}
