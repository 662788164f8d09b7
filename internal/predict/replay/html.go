package replay

import (
	"fmt"
	"io"

	"github.com/gatehouse-dev/gatehouse/internal/view"
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
	return view.OfReplay(fmt.Sprintf("%d of %d requests have another verdict", r.Changed, r.Judged), struct {
		*Report
		MostOfDay, MostOfPolicy int
	}{r, most, mostOfPolicy}).HTML(w)
}

// Class is the class of the change on a page.
func (c Change) Class() string {
	switch c {
	case NewlyRejected:
		return "bad"
	case NewlyAllowed:
		return "ok"
	case OtherObject, OtherRejection:
		return "warn"
	}
	return ""
}
