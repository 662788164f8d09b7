package nearest

import "fmt"

// Suggestion returns a question whether the user meant the nearest of the names, after prefix. It
// is empty if no name is near.
func Suggestion(prefix, given string, names []string) string {
	// A third of the letters may be wrong, so that only misspellings match, not other words.
	best, limit := "", len(given)/3
	for _, name := range names {
		if d := distance(given, name); d <= limit {
			best, limit = name, d-1
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %s%s?)", prefix, best)
}

// distance returns the number of letters to insert, delete or replace, and of pairs to swap, to get
// from a to b.
func distance(a, b string) int {
	before, row, next := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next[0] = i + 1
		for j := range len(b) {
			cost := row[j]
			if a[i] != b[j] {
				cost++
			}
			next[j+1] = min(cost, row[j+1]+1, next[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row, next = row, next, before
	}
	return row[len(b)]
}
