// Package tokens has what tokens of service accounts are signed and verified with: keys from
// files, the server's own key, or an external signer.
package tokens
