package lint

import (
	"cmp"
	"fmt"
	"slices"
)

// Merge returns the findings of several Worlds, such as the variants of a repository. A finding that several have is
// there once, with the Variant of the first, and names the subjects of all.
func Merge(reports []*Result) *Result {
	merged := *reports[0]
	first := map[string]int{}
	merged.Findings, merged.Unseen = nil, nil
	for i, r := range reports {
		for _, f := range r.Findings {
			f.Variant = i
			key := fmt.Sprint(f.Rule.ID, f.Level, f.Object, f.Path, cmp.Or(f.said, f.Message))
			if at, known := first[key]; !known {
				first[key] = len(merged.Findings)
				merged.Findings = append(merged.Findings, f)
			} else if f.cause != "" {
				merged.Findings[at].add(f.others...)
			}
		}
		for _, text := range r.Unseen {
			if !slices.Contains(merged.Unseen, text) {
				merged.Unseen = append(merged.Unseen, text)
			}
		}
	}
	merged.sort()
	return &merged
}
