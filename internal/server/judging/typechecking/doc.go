// Package typechecking writes status.typeChecking of ValidatingAdmissionPolicies: the type errors
// of the expressions of a policy for the kinds that it matches (S16.17 to S16.21).
//
// Upstream does this in kube-controller-manager. The check is upstream's own, so that the warnings
// have the same text; it never changes a verdict. The controller differs in two ways (D61): it
// checks a policy at most once per second, and it checks again when the schema of a custom kind
// changes.
package typechecking
