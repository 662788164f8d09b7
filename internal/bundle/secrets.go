package bundle

import "regexp"

// removed stands for a secret.
const removed = "[removed]"

// secrets are the forms of what lets somebody in, and what is left of each.
var secrets = []struct {
	form *regexp.Regexp
	left string
}{
	{regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?)(-----END [A-Z ]*PRIVATE KEY-----|\z)`), removed},
	// Tokens of service accounts and of issuers.
	{regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*`), removed},
	{regexp.MustCompile(`(?i)\b(bearer|basic) +[A-Za-z0-9._~+/=-]{4,}`), "$1 " + removed},
	{regexp.MustCompile(`([a-z][a-z0-9+.-]*://)[^/@\s"']+@`), "${1}" + removed + "@"},
	{regexp.MustCompile(`(?i)((?:password|passwd|secret|token|api[-_]?key)["']?\s*[=:]\s*["']?)[^\s"'&,;]{4,}`), "${1}" + removed},
}

// withoutSecrets takes out of a text what looks like a key, a token or a password.
func withoutSecrets(text []byte) ([]byte, error) {
	for _, s := range secrets {
		text = s.form.ReplaceAll(text, []byte(s.left))
	}
	return text, nil
}
