// Package exclusion has the rules by which the administrator of a server keeps webhooks,
// external hooks, policies and initializers away from some requests, or lets these go on
// when one of them fails (S23).
//
// What a rule does to a request is decided in package plan.
package exclusion
