package container

import (
	"slices"
	"strings"
	"testing"
)

var mounts = Paths{{"/etc/webhook", "/s/root/etc/webhook"}, {"/etc/webhook/certs", "/s/certs"}, {"/tmp", "/s/tmp"}}

// S33.11: a string is replaced only if it begins with the path of a mount that ends at a path boundary.
func TestPathsAreReplacedAtBoundaries(t *testing.T) {
	for _, tc := range []struct{ argument, want, from string }{
		{"/etc/webhook", "/s/root/etc/webhook", "/etc/webhook"},
		{"/etc/webhook/config.yaml", "/s/root/etc/webhook/config.yaml", "/etc/webhook"},
		{"/etc/webhook/certs/tls.crt", "/s/certs/tls.crt", "/etc/webhook/certs"},
		{"--cert-dir=/etc/webhook/certs", "--cert-dir=/s/certs", "/etc/webhook/certs"},
		{"/etc/webhooks", "/etc/webhooks", ""},
		{"/etc/webhook-certs/a", "/etc/webhook-certs/a", ""},
		{"see /etc/webhook", "see /etc/webhook", ""},
		{"--url=https://example.com/tmp", "--url=https://example.com/tmp", ""},
		{"/a=/tmp/b", "/a=/tmp/b", ""},
		{"", "", ""},
	} {
		if got, from := mounts.Argument(tc.argument); got != tc.want || from != tc.from {
			t.Errorf("%s: got %s by %q, want %s by %q", tc.argument, got, from, tc.want, tc.from)
		}
	}
}

// S33.11: in a mounted text, paths at the start of a word or of a quoted string are replaced.
func TestPathsInTextsAreReplaced(t *testing.T) {
	for _, tc := range []struct{ text, want, from string }{
		{"certDir: /etc/webhook/certs\n", "certDir: /s/certs\n", "/etc/webhook/certs"},
		{`{"dir":"/tmp","url":"https://h/tmp"}`, `{"dir":"/s/tmp","url":"https://h/tmp"}`, "/tmp"},
		{"A=/tmp/x\nB=/tmpfile\n", "A=/s/tmp/x\nB=/tmpfile\n", "/tmp"},
		{"exec m --c /etc/webhook/certs --k='/etc/webhook/k'", "exec m --c /s/certs --k='/s/root/etc/webhook/k'", "/etc/webhook/certs /etc/webhook"},
		{"/tmp", "/s/tmp", "/tmp"},
		{"a/tmp ./tmp", "a/tmp ./tmp", ""},
		{"\xff /tmp", "\xff /tmp", ""},
	} {
		got, from := mounts.Text([]byte(tc.text))
		if string(got) != tc.want || !slices.Equal(from, strings.Fields(tc.from)) {
			t.Errorf("%q: got %q by %q, want %q by %q", tc.text, got, from, tc.want, tc.from)
		}
	}
	long := []byte(strings.Repeat(" /tmp", mostText))
	if got, from := mounts.Text(long); len(got) != len(long) || from != nil {
		t.Errorf("a text of %d bytes was changed", len(long))
	}
}
