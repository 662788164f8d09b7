// Package exclusion has the exclusion rules of a server's administrator. The rules exclude
// webhooks, external hooks, policies and initializers from some requests, ignore their failures,
// shorten the timeouts of webhooks, or set the enforcement of entries (S23, S28.5).
//
// Package plan applies the rules to requests.
package exclusion
