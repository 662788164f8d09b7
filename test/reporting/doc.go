// Package reporting contains end-to-end tests of the reports about admission: traces, explanations, blame,
// spans.
package reporting
