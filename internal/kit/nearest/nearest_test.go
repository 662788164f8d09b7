package nearest

import "testing"

func TestASuggestionIsForTypingErrorsOnly(t *testing.T) {
	names := []string{"data-dir", "bind-address", "secure-port", "etcd-cafile", "etcd-keyfile", "v"}
	for given, want := range map[string]string{
		"data-dri":      " (did you mean --data-dir?)",
		"datadir":       " (did you mean --data-dir?)",
		"secureport":    " (did you mean --secure-port?)",
		"etcd-ca-file":  " (did you mean --etcd-cafile?)",
		"etcd-key-file": " (did you mean --etcd-keyfile?)",
		"port":          "",
		"x":             "",
		"":              "",
	} {
		if got := Suggestion("--", given, names); got != want {
			t.Errorf("suggestion for %q: got %q, want %q", given, got, want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"", "abc", 3},
		{"abc", "", 3},
		{"abc", "abc", 0},
		{"abc", "abd", 1},
		{"abc", "bc", 1},
		{"kitten", "sitting", 3},
		{"serv", "serve", 1},
		{"skpi", "skip", 1},
		{"ab", "ba", 1},
		{"abcd", "badc", 2},
	} {
		if got := distance(tc.a, tc.b); got != tc.want {
			t.Errorf("distance(%q, %q) = %d, want %d", tc.a, tc.b, got, tc.want)
		}
	}
}
