// Package auth authenticates and authorizes requests: with the server's certificates, client
// certificates, tokens, and RBAC.
package auth
