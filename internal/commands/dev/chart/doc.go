// Package chart renders Helm charts with Helm's own loader and engine.
//
// A chart is foreign input: its templates are programs, and Helm's engine stops none of them. So a process of this program
// renders the chart, with bounds of its time and its memory, and without network.
package chart
