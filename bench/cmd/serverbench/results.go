package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

// results are the values of all rounds.
type results struct {
	rows []*row
}

// row is one line of the table.
type row struct {
	name, unit string
	values     map[peer.Kind][]float64
}

func (r *results) add(name, unit string, kind peer.Kind, value float64) {
	i := slices.IndexFunc(r.rows, func(r *row) bool { return r.name == name })
	if i < 0 {
		i = len(r.rows)
		r.rows = append(r.rows, &row{name, unit, map[peer.Kind][]float64{}})
	}
	r.rows[i].values[kind] = append(r.rows[i].values[kind], value)
}

// print writes a Markdown table: the median, and the smallest and largest value.
func (r *results) print(w io.Writer, kinds []peer.Kind) {
	fmt.Fprint(w, "| |")
	for _, kind := range kinds {
		fmt.Fprintf(w, " %s |", kind)
	}
	fmt.Fprintf(w, "\n|---|%s\n", strings.Repeat("---|", len(kinds)))
	for _, row := range r.rows {
		fmt.Fprintf(w, "| %s (%s) |", row.name, row.unit)
		for _, kind := range kinds {
			fmt.Fprintf(w, " %s |", summary(row.values[kind]))
		}
		fmt.Fprintln(w)
	}
}

func summary(values []float64) string {
	if len(values) == 0 {
		return "-"
	}
	v := slices.Sorted(slices.Values(values))
	median := v[len(v)/2]
	if len(v)%2 == 0 {
		median = (v[len(v)/2-1] + median) / 2
	}
	return fmt.Sprintf("**%s** (%s to %s)", figure(median), figure(v[0]), figure(v[len(v)-1]))
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
