package etcd

import (
	"fmt"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Reads fail, and the process continues, when etcd ends by itself under them.
func TestReadsWhileEtcdEnds(t *testing.T) {
	s, err := Start(t.Context(), Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	var all []*clientv3.Client
	for i := range 2 {
		c, err := NewClient(t.Context(), ClientOptions{Endpoints: []string{s.Endpoint()}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if all = append(all, c.Client); i == 0 {
			s.Direct(c.Client)
		}
	}
	for i := range 100 {
		if _, err := all[0].Put(t.Context(), fmt.Sprintf("k/%d", i), "value"); err != nil {
			t.Fatal(err)
		}
	}
	ends := make(chan struct{})
	var reading sync.WaitGroup
	for _, c := range all {
		for range 8 {
			reading.Go(func() {
				for {
					select {
					case <-ends:
						return
					default:
						// Whether the read ends well does not matter.
						_, _ = c.Get(t.Context(), "k/", clientv3.WithPrefix(), clientv3.WithSerializable())
					}
				}
			})
			reading.Go(func() {
				for {
					select {
					case <-ends:
						return
					default:
						stream, err := c.GetStream(t.Context(), "k/", clientv3.WithPrefix(), clientv3.WithSerializable())
						if err == nil {
							for range stream {
							}
						}
					}
				}
			})
		}
	}
	s.etcd.Server.HardStop()
	<-s.Err()
	close(ends)
	for _, c := range all {
		c.Close()
	}
	reading.Wait()
}
