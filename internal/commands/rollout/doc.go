// Package rollout changes the enforcement of registrations in steps. It derives from a server's
// metrics and traces the effects that warn-only and audit-only registrations would have had,
// computes changes of their mode, and reports whether all servers enforce a registration. It works
// on objects that its callers read, and writes none.
package rollout
