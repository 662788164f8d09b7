package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Table has the values that were measured, a row for each measure and a column for each
// of the things compared.
type Table struct {
	rows []*row
}

// row is one line of the table.
type row struct {
	name, unit string
	values     map[string][]float64
}

// Add adds a value to a row, below the rows there are if it is new.
func (t *Table) Add(name, unit, column string, value float64) {
	i := slices.IndexFunc(t.rows, func(r *row) bool { return r.name == name })
	if i < 0 {
		i = len(t.rows)
		t.rows = append(t.rows, &row{name, unit, map[string][]float64{}})
	}
	t.rows[i].values[column] = append(t.rows[i].values[column], value)
}

// Median is the median of a row's values in a column; ok is false when there are none.
func (t *Table) Median(name, column string) (value float64, ok bool) {
	i := slices.IndexFunc(t.rows, func(r *row) bool { return r.name == name })
	if i < 0 || len(t.rows[i].values[column]) == 0 {
		return 0, false
	}
	return median(slices.Sorted(slices.Values(t.rows[i].values[column]))), true
}

// Print writes the table as Markdown: the median, and the smallest and largest value.
func (t *Table) Print(w io.Writer, columns []string) {
	fmt.Fprint(w, "| |")
	for _, column := range columns {
		fmt.Fprintf(w, " %s |", column)
	}
	fmt.Fprintf(w, "\n|---|%s\n", strings.Repeat("---|", len(columns)))
	for _, row := range t.rows {
		fmt.Fprintf(w, "| %s (%s) |", row.name, row.unit)
		for _, column := range columns {
			fmt.Fprintf(w, " %s |", summary(row.values[column]))
		}
		fmt.Fprintln(w)
	}
}

func summary(values []float64) string {
	if len(values) == 0 {
		return "-"
	}
	v := slices.Sorted(slices.Values(values))
	return fmt.Sprintf("**%s** (%s to %s)", figure(median(v)), figure(v[0]), figure(v[len(v)-1]))
}

// median is that of values in order.
func median(v []float64) float64 {
	if len(v)%2 == 0 {
		return (v[len(v)/2-1] + v[len(v)/2]) / 2
	}
	return v[len(v)/2]
}

// figure writes three significant digits, as far as a table needs them.
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
