package initialization

import (
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// keptFor is the approximate time that an encoded object is kept after its last use. keptBytes limits the
	// memory of all encoded objects.
	keptFor   = 8 * time.Second
	keptBytes = 32 << 20
)

// kept has the encoded objects of recent lists: most of the work for a list that clients read
// again and again is to encode the same objects. An object at one resource version never changes,
// so that an entry is always right. The first list of a kind keeps nothing, since clients read
// many lists only once. A nil *kept keeps nothing.
type kept struct {
	mu    sync.RWMutex
	kinds map[keptKind]*keptItems
	bytes int
	// turn counts the sweeps, which continue while any kind is kept.
	turn atomic.Int64
}

// keptKind is the key for one form of the objects of a kind in one version. typ is their Go type
// before the conversion to the version.
type keptKind struct {
	typ      reflect.Type
	version  string
	protobuf bool
}

type keptItems struct {
	items map[types.UID]*keptItem
	// turn is the turn of the last list.
	turn atomic.Int64
	// adding reports whether a list is about to add items. Only one list at a time adds items:
	// otherwise concurrent lists would each encode all the same objects, and hold them in memory.
	adding atomic.Bool
}

type keptItem struct {
	version string
	data    []byte
	// turn is the turn of the last use of the item.
	turn atomic.Int64
}

// size is the approximate memory of an item, in bytes.
func (i *keptItem) size() int { return keptSize(i.data) }

func keptSize(data []byte) int { return len(data) + 200 }

// identity returns the UID and the version of an item; ok reports whether they determine its
// content. An item with a kind is not the stored object, but was made from it.
func identity(item runtime.Object) (uid types.UID, version string, ok bool) {
	m := item.(metav1.ObjectMetaAccessor).GetObjectMeta()
	uid, version = m.GetUID(), m.GetResourceVersion()
	return uid, version, uid != "" && version != "" && item.GetObjectKind().GroupVersionKind().Empty()
}

// recall sets data for the items that are kept, and returns the number of further bytes that may be kept. If it
// is positive, the caller must call keep.
func (k *kept) recall(kind keptKind, items []runtime.Object, data [][]byte) (room int) {
	if k == nil {
		return 0
	}
	if _, _, ok := identity(items[0]); !ok {
		return 0
	}
	turn := k.turn.Load()
	k.mu.RLock()
	known, room := k.kinds[kind], keptBytes-k.bytes
	if known != nil {
		known.turn.Store(turn)
		for i, item := range items {
			uid, version, ok := identity(item)
			if it := known.items[uid]; ok && it != nil && it.version == version {
				data[i] = it.data
				it.turn.Store(turn)
			}
		}
	}
	k.mu.RUnlock()
	if known == nil {
		k.add(kind)
		return 0
	}
	if room <= 0 || !known.adding.CompareAndSwap(false, true) {
		return 0
	}
	return room
}

// lookup returns a function that returns the kept data of an object, nil if there are none. lookup returns nil
// if no object of the kind is kept.
func (k *kept) lookup(kind keptKind) func(uid types.UID, version string) []byte {
	turn := k.turn.Load()
	k.mu.RLock()
	known := k.kinds[kind]
	k.mu.RUnlock()
	if known == nil {
		return nil
	}
	known.turn.Store(turn)
	return func(uid types.UID, version string) []byte {
		k.mu.RLock()
		it := known.items[uid]
		k.mu.RUnlock()
		if it == nil || it.version != version || version == "" {
			return nil
		}
		it.turn.Store(turn)
		return it.data
	}
}

// add begins to keep the items of lists of a kind, from the next list on.
func (k *kept) add(kind keptKind) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kinds[kind] != nil {
		return
	}
	if k.kinds == nil {
		k.kinds = map[keptKind]*keptItems{}
	}
	if len(k.kinds) == 0 {
		time.AfterFunc(keptFor/2, k.sweep)
	}
	known := &keptItems{items: map[types.UID]*keptItem{}}
	known.turn.Store(k.turn.Load())
	k.kinds[kind] = known
}

// keep keeps the encoded form of the items whose indexes are in fresh.
func (k *kept) keep(kind keptKind, items []runtime.Object, data [][]byte, fresh []int) {
	turn := k.turn.Load()
	k.mu.Lock()
	defer k.mu.Unlock()
	known := k.kinds[kind]
	if known == nil {
		// A sweep dropped the kind meanwhile.
		return
	}
	known.adding.Store(false)
	for _, i := range fresh {
		uid, version, ok := identity(items[i])
		if !ok || k.bytes >= keptBytes {
			continue
		}
		if old := known.items[uid]; old != nil {
			k.bytes -= old.size()
		}
		it := &keptItem{version: version, data: data[i]}
		it.turn.Store(turn)
		known.items[uid] = it
		k.bytes += it.size()
	}
}

// sweep drops items that were not used for two turns.
func (k *kept) sweep() {
	k.mu.Lock()
	defer k.mu.Unlock()
	turn := k.turn.Add(1)
	for kind, known := range k.kinds {
		for uid, it := range known.items {
			if turn-it.turn.Load() >= 2 {
				k.bytes -= it.size()
				delete(known.items, uid)
			}
		}
		if len(known.items) == 0 && turn-known.turn.Load() >= 2 {
			delete(k.kinds, kind)
		}
	}
	if len(k.kinds) > 0 {
		time.AfterFunc(keptFor/2, k.sweep)
	}
}
