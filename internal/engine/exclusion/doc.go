// Package exclusion has the rules by which the administrator of a server keeps webhooks,
// external hooks, policies and initializers away from some requests, ignores their failures,
// shortens the timeouts of webhooks, or sets how hard entries are enforced (S23, S28.5).
//
// Package plan applies the rules to requests.
package exclusion
