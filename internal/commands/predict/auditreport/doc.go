// Package auditreport is the report of an audit, which 'gatehouse audit --output=json' writes and the agent reads.
package auditreport
