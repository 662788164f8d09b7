package main

import "testing"

func TestParseStat(t *testing.T) {
	const rest = " S 12 10 10 0 -1 4194560 1 2 3"
	for _, tc := range []struct {
		text, name string
		ok         bool
	}{
		{"99 (etcd)" + rest, "etcd", true},
		{"99 (a (b) c)" + rest, "a (b) c", true},
		{"99 (etcd) S", "", false},
		{"99 (etcd) S x", "", false},
		{"", "", false},
	} {
		name, parent, ok := parseStat(tc.text)
		if ok != tc.ok || ok && (name != tc.name || parent != 12) {
			t.Errorf("%q: %q, %d, %v", tc.text, name, parent, ok)
		}
	}
}

func TestKiB(t *testing.T) {
	const rollup = "00400000-7ffd000 ---p 00000000 00:00 0    [rollup]\nRss:  812 kB\nPss:    400 kB\nPss_Dirty: 3 kB\n"
	for name, want := range map[string]int64{"Rss:": 812, "Pss:": 400, "Swap:": 0} {
		if got := kib(rollup, name); got != want {
			t.Errorf("%s %d, want %d", name, got, want)
		}
	}
}
