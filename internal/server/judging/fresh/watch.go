package fresh

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/util/wait"
)

// watchAgainAfter is the time between the loss of a watch and the start of the next one.
const watchAgainAfter = 250 * time.Millisecond

// Watch calls changed when any server wrote a registration below root, and when a watch begins,
// since a registration may have been written before. It ends when ctx does. changed must not
// block. Callers must not depend on calls of changed: a member of etcd that hangs reports no
// writes.
func Watch(ctx context.Context, etcd clientv3.Watcher, root string, changed func()) {
	watch(ctx, etcd, RegistrationsMark(root), func(response clientv3.WatchResponse) {
		if response.Created || len(response.Events) > 0 {
			changed()
		}
	})
}

// WatchBelow calls changed with each key below a prefix that any server writes, and with the prefix
// when a watch begins. Otherwise it is like Watch.
func WatchBelow(ctx context.Context, etcd clientv3.Watcher, prefix string, changed func(key string)) {
	watch(ctx, etcd, prefix, func(response clientv3.WatchResponse) {
		if response.Created {
			changed(prefix)
		}
		for _, event := range response.Events {
			changed(string(event.Kv.Key))
		}
	}, clientv3.WithPrefix())
}

// watch watches a key, and begins again when a watch ends.
func watch(ctx context.Context, etcd clientv3.Watcher, key string, seen func(clientv3.WatchResponse), options ...clientv3.OpOption) {
	options = append(options, clientv3.WithCreatedNotify())
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		// A member without a leader receives no writes.
		watching, stop := context.WithCancel(clientv3.WithRequireLeader(ctx))
		for response := range etcd.Watch(watching, key, options...) {
			seen(response)
		}
		stop()
	}, watchAgainAfter)
}
