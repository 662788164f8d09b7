package kubernetesservice

import (
	"slices"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/etcdtest"
)

func TestAnAddressLastsAsLongAsAServerHasIt(t *testing.T) {
	client := etcdtest.Start(t)
	of := func(server string) leases {
		return leases{ctx: t.Context(), etcd: client.Client, prefix: "/endpoints", server: server, ttl: time.Hour}
	}
	one, two := of("one"), of("two")
	for _, step := range []struct {
		what string
		do   func() error
		want []string
	}{
		{"nothing", func() error { return nil }, nil},
		{"a server comes", func() error { return one.UpdateLease("192.0.2.1") }, []string{"192.0.2.1"}},
		{"it goes on", func() error { return one.UpdateLease("192.0.2.1") }, []string{"192.0.2.1"}},
		{"another one on the same host", func() error { return two.UpdateLease("192.0.2.1") }, []string{"192.0.2.1"}},
		{"one with an address of IPv6", func() error { return of("three").UpdateLease("2001:db8::1") }, []string{"192.0.2.1", "2001:db8::1"}},
		{"the first one ends", func() error { return one.RemoveLease("192.0.2.1") }, []string{"192.0.2.1", "2001:db8::1"}},
		{"it ends again", func() error { return one.RemoveLease("192.0.2.1") }, []string{"192.0.2.1", "2001:db8::1"}},
		{"the second one ends", func() error { return two.RemoveLease("192.0.2.1") }, []string{"2001:db8::1"}},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		got, err := one.ListLeases()
		if err != nil || !slices.Equal(got, step.want) {
			t.Errorf("%s: got %q, want %q: %v", step.what, got, step.want, err)
		}
	}
}

// A killed server does not remove its address; the lease does.
func TestAnAddressGoesWithItsLease(t *testing.T) {
	client := etcdtest.Start(t)
	l := leases{ctx: t.Context(), etcd: client.Client, prefix: "/endpoints", server: "one", ttl: time.Second}
	if err := l.UpdateLease("192.0.2.1"); err != nil {
		t.Fatal(err)
	}
	gone := client.Watch(t.Context(), l.key("192.0.2.1"))
	if got, err := l.ListLeases(); err != nil {
		t.Fatal(err)
	} else if len(got) == 0 {
		return // It is gone already.
	}
	select {
	case <-gone:
	case <-time.After(time.Minute):
		t.Fatal("it is still there after a minute")
	}
	if got, err := l.ListLeases(); err != nil || len(got) > 0 {
		t.Errorf("got %q, %v", got, err)
	}
}
