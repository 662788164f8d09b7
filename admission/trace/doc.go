// Package trace records what admission did with a request.
//
// A Trace covers one request: the steps of all plugins, in both passes and all rounds. The step
// of a plugin that acts on registrations has a Run: which webhooks were called, in which order,
// what each answered, how the answer was used, what followed from the failure policies of
// webhooks that failed, and which initializers the object got. A Trace is plain data, and can
// be read without the snapshot that it was made with.
//
// Package dispatch writes a Run while it runs its part of a plan. The Publisher adds the complete
// Run to the Trace of the request, or makes a Trace of it alone.
//
// # Readers
//
// All metrics, annotations, logs and other reports about admission come from runs, by one
// function for each reader. No other code counts or logs what a run has:
//
//   - metrics (S10), named as dashboards for Kubernetes expect;
//   - audit annotations (S5.25 to S5.27, S6.7, S12.18, S4.17);
//   - warnings to the client (S4.18, S4.19) and latency trackers (S10.7);
//   - the log, which has the failures that the failure policy forgave;
//   - OpenTelemetry spans, opened by StartStep and StartSpan;
//   - a Record, the stable JSON form of a whole Trace, without the contents of secrets.
//
// # Concurrency
//
// A Trace is safe for concurrent use. A Run has one writer until it is published, except that
// concurrent calls each write to their own element of Calls. A published Run is read only.
package trace
