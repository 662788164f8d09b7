package storage

import (
	"bytes"
	"context"
	"hash/maphash"
	"io"
	"reflect"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
)

// handover passes the objects of writes to the watch of the store's cache. The bytes of a write are decoded twice at
// about the same time: for the response, and by the watch. The first of the two leaves the object for the second, see
// function second, which costs less than decoding. The bytes alone determine the object, so neither revisions nor
// the order of the two matter. The bytes are plaintext, also with encryption at rest.
type handover struct {
	codec     runtime.Codec
	decoder   etcd3.Decoder
	versioner apistorage.Versioner
	writes    *writes
	// on is set while the store has a watch cache, which takes the objects.
	on atomic.Bool
}

// object returns the object of the bytes: the one that was left, or else the result of decode.
func (h *handover) object(data []byte, decode func() (runtime.Object, error)) (runtime.Object, error) {
	w := h.writes.find(h, data)
	if w == nil {
		return decode()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if left := w.left; left != nil {
		w.left = nil
		h.writes.remove(w)
		return left, nil
	}
	obj, err := decode()
	if err == nil {
		w.left = second(obj)
	}
	return obj, err
}

// second returns an object for the second of the two. Both may set fields of the object, such as its revision, and
// neither changes what these contain: a get from the watch cache shares that, too. The fields of an unstructured object
// are all in one map, which is copied.
func second(obj runtime.Object) runtime.Object {
	if _, ok := obj.(runtime.Unstructured); ok {
		return obj.DeepCopyObject()
	}
	value := reflect.ValueOf(obj).Elem()
	out := reflect.New(value.Type())
	out.Elem().Set(value)
	return out.Interface().(runtime.Object)
}

// handoverCodec is the codec of a store: it encodes for writes, and decodes for watches.
type handoverCodec struct{ *handover }

// Identifier implements runtime.Encoder.
func (h handoverCodec) Identifier() runtime.Identifier { return h.codec.Identifier() }

// Encode implements runtime.Encoder.
func (h handoverCodec) Encode(obj runtime.Object, out io.Writer) error {
	buffer, ok := out.(*bytes.Buffer)
	if !ok || !h.on.Load() {
		return h.codec.Encode(obj, out)
	}
	begin := buffer.Len()
	if err := h.codec.Encode(obj, buffer); err != nil {
		return err
	}
	h.writes.add(h.handover, buffer.Bytes()[begin:])
	return nil
}

// Decode implements runtime.Decoder.
func (h handoverCodec) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (obj runtime.Object, kind *schema.GroupVersionKind, err error) {
	if into != nil || !h.on.Load() {
		return h.codec.Decode(data, defaults, into)
	}
	obj, err = h.object(data, func() (decoded runtime.Object, err error) {
		decoded, kind, err = h.codec.Decode(data, defaults, nil)
		return decoded, err
	})
	return obj, kind, err
}

// handoverDecoder is the decoder of a store, for responses and lists.
type handoverDecoder struct{ *handover }

// Decode implements etcd3.Decoder.
func (h handoverDecoder) Decode(data []byte, into runtime.Object, revision int64) error {
	if !h.on.Load() {
		return h.decoder.Decode(data, into, revision)
	}
	obj, err := h.object(data, func() (runtime.Object, error) {
		return into, h.decoder.Decode(data, into, revision)
	})
	switch {
	case err != nil || obj == into:
		return err
	case reflect.TypeOf(obj) != reflect.TypeOf(into):
		return h.decoder.Decode(data, into, revision)
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(obj).Elem())
	return h.versioner.UpdateObject(into, uint64(revision))
}

// DecodeListItem implements etcd3.Decoder.
func (h handoverDecoder) DecodeListItem(ctx context.Context, data []byte, revision uint64, newItem func() runtime.Object) (runtime.Object, error) {
	return h.decoder.DecodeListItem(ctx, data, revision, newItem)
}

// mostWrites is the number of writes that are remembered: a few milliseconds of a busy server. Failed writes and
// comparisons of updates stay until later ones replace them. mostBytes is the size of the largest of these writes.
const mostWrites, mostBytes = 256, 16 << 10

// writes are the latest writes of a server.
type writes struct {
	mu   sync.Mutex
	seed maphash.Seed
	by   map[writeKey]*write
	// ring has the writes in their order, nil for removed ones; next is the place of the oldest.
	ring [mostWrites]*write
	next int
}

type writeKey struct {
	of   *handover
	hash uint64
}

// write is a write whose bytes are decoded.
type write struct {
	key   writeKey
	place int
	data  []byte
	mu    sync.Mutex
	// left is the object for the second of the two; nil until the bytes were decoded once.
	left runtime.Object
}

func newWrites() *writes { return &writes{seed: maphash.MakeSeed(), by: map[writeKey]*write{}} }

func (s *writes) key(of *handover, data []byte) writeKey {
	return writeKey{of, maphash.Bytes(s.seed, data)}
}

// add remembers the bytes of a write in place of the oldest write.
func (s *writes) add(of *handover, data []byte) {
	if len(data) > mostBytes {
		return
	}
	w := &write{key: s.key(of, data), data: data}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.by[w.key]
	if before != nil && bytes.Equal(before.data, data) {
		// An update encodes the object that it found, which the watch may still have to decode.
		return
	}
	s.removeLocked(before)
	s.removeLocked(s.ring[s.next])
	w.place = s.next
	s.by[w.key], s.ring[w.place] = w, w
	s.next = (s.next + 1) % mostWrites
}

// find returns the write with the bytes; nil if there is none.
func (s *writes) find(of *handover, data []byte) *write {
	if len(data) > mostBytes {
		return nil
	}
	key := s.key(of, data)
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.by[key]; w != nil && bytes.Equal(w.data, data) {
		return w
	}
	return nil
}

func (s *writes) remove(w *write) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeLocked(w)
}

// forget removes the writes of a closed store.
func (s *writes) forget(of *handover) {
	of.on.Store(false)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.ring {
		if w != nil && w.key.of == of {
			s.removeLocked(w)
		}
	}
}

// removeLocked removes a write, which may be nil or removed already.
func (s *writes) removeLocked(w *write) {
	if w != nil && s.ring[w.place] == w {
		s.ring[w.place] = nil
		delete(s.by, w.key)
	}
}
