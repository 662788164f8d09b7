// Package trace records how admission handled a request.
//
// A Trace covers one request: the steps of all plugins, in both passes and all rounds. The step of
// a plugin for webhooks, policies or initializers has a Run: the webhooks that were called, the
// answers and their use, and the initializers of the object. Package dispatch writes a Run while it
// runs its part of a plan, and the Publisher adds it to the Trace.
//
// Runs are the only source of metrics (S10), audit annotations (S5.25 to S5.27, S6.7, S12.18, S4.17),
// warnings (S4.18, S4.19), latency trackers (S10.7), the log of ignored failures and spans.
//
// A Record is the stable JSON form of a Trace, without the contents of secrets. Its acts are the
// rejections, changes and warnings, each with the actor (Act).
//
// A Trace is safe for concurrent use. A Run has one writer until it is published, except that each
// concurrent call writes its element of Calls. A published Run is read only.
package trace
