// Package tokens signs and verifies tokens of service accounts: with keys from files, with the
// server's own key, or with an external signer.
package tokens
