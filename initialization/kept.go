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
	// keptFor is about how long what was encoded is kept after it was last used; keptBytes bounds
	// it.
	keptFor   = 8 * time.Second
	keptBytes = 32 << 20
)

// kept is how objects of lists were encoded a moment ago: most of the work for a list that is
// read again and again is to encode the same objects. What an object is at one resource version
// never changes, so that an entry is right for as long as it is there. The first list of a kind
// keeps nothing, as many are read once. A nil *kept keeps nothing.
type kept struct {
	mu    sync.RWMutex
	kinds map[keptKind]*keptItems
	bytes int
	// turn counts the sweeps; there is a next one while there are kinds.
	turn atomic.Int64
}

// keptKind is what one form of the objects of one version of a kind is kept under: their Go type
// says which version it is.
type keptKind struct {
	typ      reflect.Type
	protobuf bool
}

type keptItems struct {
	items map[types.UID]*keptItem
	// turn is the one of the last list.
	turn atomic.Int64
	// adding reports whether a list is about to add items. One at a time does: many lists of the
	// same objects at once would each encode all of them, and have them in memory.
	adding atomic.Bool
}

type keptItem struct {
	version string
	data    []byte
	// turn is the one in which the item was last used.
	turn atomic.Int64
}

// size is about what an item takes.
func (i *keptItem) size() int { return keptSize(i.data) }

func keptSize(data []byte) int { return len(data) + 200 }

func kindOf(items []runtime.Object, f form) keptKind {
	return keptKind{reflect.TypeOf(items[0]), f.protobuf}
}

// identity says which object an item is, if that says all about it. An item that names its kind
// is not the object that is stored, but one that was made of it.
func identity(item runtime.Object) (uid types.UID, version string, ok bool) {
	m := item.(metav1.ObjectMetaAccessor).GetObjectMeta()
	uid, version = m.GetUID(), m.GetResourceVersion()
	return uid, version, uid != "" && version != "" && item.GetObjectKind().GroupVersionKind().Empty()
}

// recall sets what is known of the items, and returns for how many bytes of others there is room.
// If there is any, keep must be called.
func (k *kept) recall(items []runtime.Object, f form, data [][]byte) (room int) {
	if k == nil {
		return 0
	}
	if _, _, ok := identity(items[0]); !ok {
		return 0
	}
	kind, turn := kindOf(items, f), k.turn.Load()
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

// add begins to keep what lists of a kind have, from the next list on.
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

// keep keeps how some of the items were encoded, those whose numbers are in fresh.
func (k *kept) keep(items []runtime.Object, f form, data [][]byte, fresh []int) {
	turn := k.turn.Load()
	k.mu.Lock()
	defer k.mu.Unlock()
	known := k.kinds[kindOf(items, f)]
	if known == nil {
		// It was dropped meanwhile.
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

// sweep drops what was not used for two turns.
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
