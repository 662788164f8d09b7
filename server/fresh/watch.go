package fresh

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// watchAgainAfter is how long after a watch was lost the next one begins.
const watchAgainAfter = 250 * time.Millisecond

// Watch calls changed when a registration below root was written by any server,
// and when a watch begins, since one may have been written before. It ends when ctx
// does. changed must not block. Nothing may depend on being called: a member of etcd
// that hangs keeps the news to itself.
func Watch(ctx context.Context, etcd clientv3.Watcher, root string, changed func()) {
	for ctx.Err() == nil {
		// A member without a leader hears of no write.
		watching, stop := context.WithCancel(clientv3.WithRequireLeader(ctx))
		for response := range etcd.Watch(watching, RegistrationsMark(root), clientv3.WithCreatedNotify()) {
			if response.Created || len(response.Events) > 0 {
				changed()
			}
		}
		stop()
		select {
		case <-ctx.Done():
		case <-time.After(watchAgainAfter):
		}
	}
}
