// Package reporting holds end-to-end tests of what users see of admission: traces, explanations,
// blame, spans.
package reporting
