package main

import "testing"

func TestParseStat(t *testing.T) {
	const rest = " S 12 10 10 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 9 0 100 123456 4321 18446744073709551615"
	for _, tc := range []struct {
		text, name string
		ok         bool
	}{
		{"99 (etcd)" + rest, "etcd", true},
		{"99 (a (b) c)" + rest, "a (b) c", true},
		{"99 (etcd) S 12", "", false},
		{"", "", false},
	} {
		name, parent, pages, ok := parseStat(tc.text)
		if ok != tc.ok || ok && (name != tc.name || parent != 12 || pages != 4321) {
			t.Errorf("%q: %q, %d, %d, %v", tc.text, name, parent, pages, ok)
		}
	}
}
