// Package trace records what admission did with a request.
//
// A Trace covers one request: the steps of all plugins, in both passes and all rounds. The step
// of a plugin that acts on registrations has a Run: which webhooks were called, what each
// answered, how the answer was used, and which initializers the object got. Package dispatch
// writes a Run while it runs its part of a plan, and the Publisher adds it to the Trace.
//
// All reports about admission come from runs, by one function for each reader: metrics (S10),
// audit annotations (S5.25 to S5.27, S6.7, S12.18, S4.17), warnings to the client (S4.18, S4.19),
// latency trackers (S10.7), the log, which has the failures that the failure policy forgave, and
// OpenTelemetry spans. No other code counts or logs.
//
// A Record is the stable JSON form of a Trace, without the contents of secrets. It answers who
// rejected, changed or spared the request, by what and in which words (Act).
//
// A Trace is safe for concurrent use. A Run has one writer until it is published, except that
// concurrent calls each write to their own element of Calls. A published Run is read only.
package trace
