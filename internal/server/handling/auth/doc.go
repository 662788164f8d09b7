// Package auth says who a caller is and what they may do: the server's
// certificates, client certificates, tokens, and RBAC.
package auth
