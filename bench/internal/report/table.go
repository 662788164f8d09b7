package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Table contains measured values, with a row for each measure and a column for each server or variant.
type Table struct {
	// Ratio adds a column with the ratio of the second column to the first, if there are two.
	Ratio bool

	rows []*row
}

// Passed is the text of a step that passed. A row with only this text is not printed.
const Passed = "passed"

// row is one line of the table.
type row struct {
	name, unit string
	values     map[string][]float64
	texts      map[string][]string
}

// Add adds a value to a row. A new row is added at the end.
func (t *Table) Add(name, unit, column string, value float64) {
	r := t.row(name)
	r.unit = unit
	r.values[column] = append(r.values[column], value)
}

// Say adds a text to a row. Each text is printed once.
func (t *Table) Say(name, column, text string) {
	r := t.row(name)
	if !slices.Contains(r.texts[column], text) {
		r.texts[column] = append(r.texts[column], text)
	}
}

// Reserve adds a row if it does not exist yet. The row is printed if it is not empty.
func (t *Table) Reserve(name string) { t.row(name) }

func (t *Table) row(name string) *row {
	i := slices.IndexFunc(t.rows, func(r *row) bool { return r.name == name })
	if i < 0 {
		i = len(t.rows)
		t.rows = append(t.rows, &row{name: name, values: map[string][]float64{}, texts: map[string][]string{}})
	}
	return t.rows[i]
}

// says reports whether there is anything to print.
func (r *row) says() bool {
	if len(r.values) > 0 {
		return true
	}
	for _, texts := range r.texts {
		if !slices.Equal(texts, []string{Passed}) {
			return true
		}
	}
	return false
}

// Median returns the median of a row's values in a column; ok is false if there are none.
func (t *Table) Median(name, column string) (value float64, ok bool) {
	i := slices.IndexFunc(t.rows, func(r *row) bool { return r.name == name })
	if i < 0 || len(t.rows[i].values[column]) == 0 {
		return 0, false
	}
	return median(slices.Sorted(slices.Values(t.rows[i].values[column]))), true
}

// enough is the number of values from which on their spread is given by quartiles. With fewer, it is the smallest and the
// largest value.
const enough = 7

// Print writes the table as Markdown: medians and their spread.
func (t *Table) Print(w io.Writer, columns []string) {
	fmt.Fprint(w, "| |")
	for _, column := range columns {
		fmt.Fprintf(w, " %s |", column)
	}
	ratio, width := t.Ratio && len(columns) == 2, len(columns)
	if ratio {
		fmt.Fprint(w, " ratio |")
		width++
	}
	fmt.Fprintf(w, "\n|---|%s\n", strings.Repeat("---|", width))
	for _, row := range t.rows {
		if !row.says() {
			continue
		}
		fmt.Fprintf(w, "| %s", row.name)
		if row.unit != "" {
			fmt.Fprintf(w, " (%s)", row.unit)
		}
		fmt.Fprint(w, " |")
		for _, column := range columns {
			if texts := row.texts[column]; len(texts) > 0 {
				fmt.Fprintf(w, " %s |", strings.Join(texts, "; "))
				continue
			}
			fmt.Fprintf(w, " %s |", summary(row.values[column]))
		}
		if ratio {
			fmt.Fprintf(w, " %s |", row.ratio(columns))
		}
		fmt.Fprintln(w)
	}
}

// ratio formats the ratio of the second column to the first; empty if one of them has no value. With enough values in
// both, it is the median of the ratios of the rounds, with its spread.
func (r *row) ratio(columns []string) string {
	first, second := r.values[columns[0]], r.values[columns[1]]
	if len(first) == 0 || len(second) == 0 {
		return ""
	}
	if len(first) == len(second) && len(first) >= enough && !slices.Contains(first, 0) {
		ratios := make([]float64, len(first))
		for i := range ratios {
			ratios[i] = second[i] / first[i]
		}
		slices.Sort(ratios)
		low, high := spread(ratios)
		return fmt.Sprintf("%sx (%s to %s)", figure(median(ratios)), figure(low), figure(high))
	}
	of := median(slices.Sorted(slices.Values(first)))
	if of == 0 {
		return ""
	}
	return figure(median(slices.Sorted(slices.Values(second)))/of) + "x"
}

func summary(values []float64) string {
	if len(values) == 0 {
		return "-"
	}
	v := slices.Sorted(slices.Values(values))
	if len(v) == 1 {
		return fmt.Sprintf("**%s**", figure(v[0]))
	}
	low, high := spread(v)
	return fmt.Sprintf("**%s** (%s to %s)", figure(median(v)), figure(low), figure(high))
}

// spread returns the quartiles of sorted values, or the smallest and largest of a few.
func spread(v []float64) (low, high float64) {
	if len(v) < enough {
		return v[0], v[len(v)-1]
	}
	half := len(v) / 2
	return median(v[:half]), median(v[len(v)-half:])
}

// median returns the median of sorted values.
func median(v []float64) float64 {
	if len(v)%2 == 0 {
		return (v[len(v)/2-1] + v[len(v)/2]) / 2
	}
	return v[len(v)/2]
}

// figure formats a value with up to three significant digits.
func figure(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}
