// Package report holds the findings of the commands, and writes them for programs: SARIF, JUnit,
// annotations of code hosts, PolicyReports. Package view draws them for people.
package report
