package replicas

import (
	"testing"
	"time"
)

// A server that does not use the registrations of a kind enforces none of them, whatever it has
// read. Other servers do. A client that waits for a deletion does not wait for such a server.
func TestStatesOfKindsThatAreOff(t *testing.T) {
	s := newStore(t)
	first := s.write("podpolicy")
	on, _ := s.running("on")
	off := NewAnnouncer(Options{Etcd: s.client.Client, Prefix: prefix, ID: "off", MaxStaleness: 5 * time.Second, Off: []string{"initializerconfigurations", resource}})
	if err := off.Announce(t.Context()); err != nil {
		t.Fatal(err)
	}
	adopt(on, first)
	adopt(off, first)
	if err := off.tell(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.eventually("one enforces it", "podpolicy", summary{text(first), false, map[string]string{"on": text(first), "off": ""}})
	second := s.write("podpolicy")
	s.eventually("changed", "podpolicy", summary{text(second), false, map[string]string{"on": text(first), "off": ""}})
	gone := s.remove("podpolicy")
	s.eventually("deleted, and enforced", "podpolicy", summary{"", false, map[string]string{"on": text(first), "off": ""}})
	adopt(on, gone)
	s.eventually("deleted, and enforced by none, though one has not noticed", "podpolicy", summary{})
}
