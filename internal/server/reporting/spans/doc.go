// Package spans sends the spans of requests to an OpenTelemetry receiver, if a
// TracingConfiguration names one.
package spans
