package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

// samples are measurements by load, change, row, and server.
type samples map[sample][]float64

type sample struct {
	load, change, what string
	kind               peer.Kind
}

func (s samples) add(load, change, what string, kind peer.Kind, value float64) {
	k := sample{load, change, what, kind}
	s[k] = append(s[k], value)
}

// print writes a Markdown table: the median and the 99th percentile, or a share.
func (s samples) print(w io.Writer, changes []string, kinds []peer.Kind) {
	fmt.Fprint(w, "| |")
	for _, kind := range kinds {
		fmt.Fprintf(w, " %s, median | 99th percentile |", kind)
	}
	fmt.Fprintf(w, "\n|---|%s\n", strings.Repeat("---|", 2*len(kinds)))
	for _, change := range changes {
		for _, load := range loads {
			for _, what := range []string{ofWrite, onSame, onOther, escaped} {
				s.printRow(w, sample{load: load, change: change, what: what}, kinds)
			}
		}
	}
}

func (s samples) printRow(w io.Writer, row sample, kinds []peer.Kind) {
	unit := "ms"
	if row.what == escaped {
		unit = "%"
	}
	fmt.Fprintf(w, "| %s: %s, %s (%s) |", row.change, row.what, row.load, unit)
	for _, kind := range kinds {
		row.kind = kind
		values := slices.Sorted(slices.Values(s[row]))
		switch {
		case len(values) == 0:
			fmt.Fprint(w, " - | - |")
		case row.what == escaped:
			fmt.Fprintf(w, " **%.1f** of %d | |", mean(values), len(values))
		default:
			fmt.Fprintf(w, " **%.1f** | %.1f |", values[len(values)/2], values[len(values)*99/100])
		}
	}
	fmt.Fprintln(w)
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}
