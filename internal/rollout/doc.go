// Package rollout is how a change of registrations is made in steps: what the soft ones would have
// done with requests, by the metrics and traces of a server, how one becomes harder or softer, and
// whether all servers enforce it. It decides over objects that others read, and writes none.
package rollout
