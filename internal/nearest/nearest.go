package nearest

import "fmt"

// Suggestion asks whether the nearest of the names was meant, written after prefix. It
// is empty when none is near.
func Suggestion(prefix, given string, names []string) string {
	// A third of the letters may be wrong: typing errors, not other words.
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

// distance counts the letters to insert, delete or replace to get from a to b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
