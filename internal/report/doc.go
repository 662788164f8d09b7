// Package report has what the commands find, and writes it for programs: SARIF, JUnit, the
// annotations of code hosts, PolicyReports. Package pages draws it for people.
package report
