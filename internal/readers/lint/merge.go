package lint

import (
	"fmt"
	"slices"
)

// Merge returns the findings of several Worlds, such as the variants of a repository. A finding that several have is
// there once, with the Variant of the first.
func Merge(reports []*Report) *Report {
	merged := *reports[0]
	seen := map[string]bool{}
	merged.Findings, merged.Unseen = nil, nil
	for i, r := range reports {
		for _, f := range r.Findings {
			f.Variant = i
			if key := fmt.Sprint(f.Rule.ID, f.Level, f.Object, f.Path, f.Message); !seen[key] {
				seen[key] = true
				merged.Findings = append(merged.Findings, f)
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
