package replicas

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"
)

// S29.8: a user who changes the configuration waits until all servers use it, and gets the names of the servers
// that do not.
func TestAwaitEncryption(t *testing.T) {
	s := newStore(t)
	const root = "/encryption"
	running := func(id string) *Announcer {
		a := NewAnnouncer(Options{Etcd: s.client.Client, Prefix: root + "/gatehouse/replicas", ID: id, Address: "https://" + id, MaxStaleness: 5 * time.Second})
		if err := a.Announce(t.Context()); err != nil {
			t.Fatal(err)
		}
		var ended sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		ended.Go(func() { a.Run(ctx) })
		t.Cleanup(func() {
			stop()
			ended.Wait()
		})
		return a
	}
	a := running("a")
	a.Encrypts("old")
	silent := running("silent")
	short, cancel := context.WithTimeout(t.Context(), 3*lookAgain)
	defer cancel()
	if err := AwaitEncryption(short, s.client.KV, root, "new"); err == nil || !strings.Contains(err.Error(), "a at https://a") || !strings.Contains(err.Error(), "silent at https://silent") {
		t.Errorf("got %v", err)
	}
	looked := s.client.Watch(t.Context(), EncryptionKey(root))
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		done <- AwaitEncryption(ctx, s.client.KV, root, "new")
	}()
	<-looked
	a.Encrypts("new")
	silent.Encrypts("new")
	if err := <-done; err != nil {
		t.Error(err)
	}
}
