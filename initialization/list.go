package initialization

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"

	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
)

// listEncoder writes lists of typed objects item by item. A list takes the memory of its largest
// object, and only objects that carry metadata.initializers cost more work.
type listEncoder struct {
	// Encoder converts objects to a version, and encodes them.
	runtime.Encoder
	form form
	kept *kept
	// version identifies the version.
	version string
	// listing has the kept data that the store found for the list; nil without a Listing.
	listing *Listing
}

var _ runtime.EncoderWithAllocator = &listEncoder{}

func (e *listEncoder) Encode(obj runtime.Object, w io.Writer) error {
	return e.EncodeWithAllocator(obj, w, nil)
}

// EncodeWithAllocator implements runtime.EncoderWithAllocator.
func (e *listEncoder) EncodeWithAllocator(obj runtime.Object, w io.Writer, memory runtime.MemoryAllocator) error {
	// A list may be written for a long time, to a client that reads slowly. Nothing here may hold
	// obj then: a list of 10,000 pods takes 12 MiB.
	if l, err := e.list(obj); err != nil {
		return err
	} else if l != nil {
		return l.write(w)
	}
	if inner, ok := e.Encoder.(runtime.EncoderWithAllocator); ok && memory != nil {
		return inner.EncodeWithAllocator(obj, w, memory)
	}
	return e.Encoder.Encode(obj, w)
}

// list returns obj as a list that is ready to be written. It returns nil if obj is not a list of
// typed objects, or has a form that it does not know. Only the objects that are not kept are
// converted.
func (e *listEncoder) list(obj runtime.Object) (*list, error) {
	if _, ok := obj.(metav1.ListMetaAccessor); !ok || !meta.IsListType(obj) {
		return nil, nil
	}
	items, err := meta.ExtractList(obj)
	if err != nil {
		return nil, nil
	}
	var found [][]byte
	if e.listing != nil {
		found = e.listing.data
	}
	if len(items) == 0 && len(found) == 0 {
		return nil, nil
	}
	if len(items) > 0 {
		if _, ok := items[0].(metav1.ObjectMetaAccessor); !ok {
			return nil, nil
		}
	}
	// The copy shares the items with obj, until SetList removes them from the copy.
	copied := reflect.New(reflect.TypeOf(obj).Elem())
	copied.Elem().Set(reflect.ValueOf(obj).Elem())
	partial := copied.Interface().(runtime.Object)
	if err := meta.SetList(partial, []runtime.Object{}); err != nil {
		return nil, nil
	}
	l := &list{form: e.form, data: make([][]byte, len(items))}
	var fresh []int
	room := 0
	if len(items) > 0 {
		kind := keptKind{reflect.TypeOf(items[0]), e.version, e.form.protobuf}
		if room = e.kept.recall(kind, items, l.data); room > 0 {
			data := l.data
			defer func() { e.kept.keep(kind, items, data, fresh) }()
		}
	}
	missing := missing(items, l.data)
	if len(missing) == len(items) {
		// The copy shares all items with obj, which costs nothing.
		copied.Elem().Set(reflect.ValueOf(obj).Elem())
	} else if err := meta.SetList(partial, missing); err != nil {
		return nil, err
	}
	var c converted
	if err := e.Encoder.Encode(partial, &c); err != nil {
		return nil, err
	}
	unknown := func() (*list, error) {
		if found != nil {
			return nil, fmt.Errorf("the kept part of %T cannot be joined with the rest", obj)
		}
		return nil, nil
	}
	if len(c.items) != len(missing) || e.form.protobuf && !c.protobuf {
		return unknown()
	}
	frame := jsonFrame
	if e.form.protobuf {
		frame = protobufFrame
	}
	if start, _ := frame(c.empty.Bytes(), 0); start == nil {
		return unknown()
	}
	l.items = c.items
	l.json = json.NewEncoder(&l.buf)
	if fresh, err = l.prepare(room); err != nil {
		return nil, err
	}
	if found != nil {
		l.join(found)
	}
	l.start, l.end = frame(c.empty.Bytes(), l.size())
	return l, nil
}

// missing returns the items without data.
func missing(items []runtime.Object, data [][]byte) []runtime.Object {
	missing := make([]runtime.Object, 0, len(items))
	for i, item := range items {
		if data[i] == nil {
			missing = append(missing, item)
		}
	}
	return missing
}

// converted is a writer that receives a list after its conversion to the version of the clients.
type converted struct {
	// items are the items of the list, and empty is the encoded list without them.
	items []runtime.Object
	empty bytes.Buffer
	// protobuf reports whether the items can be encoded in protobuf.
	protobuf bool
}

// Write implements io.Writer. The encoder that knows converted gives it a list instead.
func (*converted) Write(data []byte) (int, error) {
	return 0, fmt.Errorf("%d encoded bytes instead of a list", len(data))
}

func (c *converted) take(obj runtime.Object, inner runtime.Encoder) error {
	items, err := meta.ExtractList(obj)
	if err != nil {
		return err
	}
	copied := reflect.New(reflect.TypeOf(obj).Elem())
	copied.Elem().Set(reflect.ValueOf(obj).Elem())
	empty := copied.Interface().(runtime.Object)
	if err := meta.SetList(empty, []runtime.Object{}); err != nil {
		return err
	}
	c.items, c.protobuf = items, true
	if len(items) > 0 {
		_, c.protobuf = items[0].(protobufItem)
	}
	return inner.Encode(empty, &c.empty)
}

// list is a list that is written item by item.
type list struct {
	form form
	// data has the items that were encoded before the list is written. items are the others, in
	// their order. sizes has their lengths, in protobuf.
	data  [][]byte
	items []runtime.Object
	sizes []int
	buf   bytes.Buffer
	json  *json.Encoder
	// start and end are the encoded parts of the list before and after the items.
	start, end []byte
}

// buffers collect small writes: a write to the connection costs the same for one object and for fifty.
var buffers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, bufferSize) }}

const bufferSize = 32 << 10

// prepare encodes the items that the first write depends on, and the items that fit into room. It returns the
// indexes of the items that may be kept.
func (l *list) prepare(room int) (fresh []int, err error) {
	items := l.items
	l.items = nil
	next := 0
	for i := range l.data {
		if l.data[i] != nil {
			continue
		}
		item := items[next]
		next++
		if room > 0 || l.form.protobuf && initializers.Has(item) {
			data, err := l.encodeItem(item)
			if err != nil {
				return nil, err
			}
			l.data[i], fresh = slices.Clone(data), append(fresh, i)
			room -= keptSize(data)
			continue
		}
		l.items = append(l.items, item)
		if l.form.protobuf {
			l.sizes = append(l.sizes, item.(protobufItem).Size())
		}
	}
	return fresh, nil
}

// join inserts the items between the found ones, whose data are in found.
func (l *list) join(found [][]byte) {
	all, next := slices.Clone(found), 0
	for i, data := range all {
		if data == nil {
			all[i] = l.data[next]
			next++
		}
	}
	l.data = all
}

// size returns the number of bytes of the items in a list in protobuf; 0 in other forms.
func (l *list) size() (total int) {
	if !l.form.protobuf {
		return 0
	}
	add := func(size int) { total += protowire.SizeTag(protobufItems) + protowire.SizeBytes(size) }
	for _, data := range l.data {
		if data != nil {
			add(len(data))
		}
	}
	for _, size := range l.sizes {
		add(size)
	}
	return total
}

// write writes start, the items and end.
func (l *list) write(w io.Writer) error {
	// Upstream's response writer compresses long responses. If the first write is not short, it treats the
	// write as the whole response.
	short := 1
	if l.form.protobuf {
		short = len(protobufPrefix)
	}
	if _, err := w.Write(l.start[:short]); err != nil {
		return err
	}
	out := buffers.Get().(*bufio.Writer)
	out.Reset(w)
	defer func() {
		out.Reset(nil)
		buffers.Put(out)
	}()
	_, _ = out.Write(l.start[short:])
	next := 0
	for i, data := range l.data {
		if data == nil {
			var err error
			if data, err = l.encodeItem(l.items[next]); err != nil {
				return err
			}
			next++
		}
		if l.form.protobuf {
			head := protowire.AppendTag(out.AvailableBuffer(), protobufItems, protowire.BytesType)
			_, _ = out.Write(protowire.AppendVarint(head, uint64(len(data))))
		} else if i > 0 {
			_ = out.WriteByte(',')
		}
		if _, err := out.Write(data); err != nil {
			return err
		}
	}
	_, _ = out.Write(l.end)
	return out.Flush()
}

// protobufItem is an object that can be encoded in protobuf.
type protobufItem interface {
	Size() int
	MarshalToSizedBuffer([]byte) (int, error)
}

// encodeItem returns an object as the list shows it, until the next call.
func (l *list) encodeItem(item runtime.Object) ([]byte, error) {
	l.buf.Reset()
	if l.form.protobuf {
		m := item.(protobufItem)
		size := m.Size()
		l.buf.Grow(size)
		data := l.buf.AvailableBuffer()[:size]
		if n, err := m.MarshalToSizedBuffer(data); err != nil {
			return nil, err
		} else if n != size {
			return nil, fmt.Errorf("an object of %d bytes in protobuf has %d", size, n)
		}
		if !initializers.Has(item) {
			return data, nil
		}
		data, err := initializers.ExposeProtobuf(data, false)
		if err != nil {
			return nil, fmt.Errorf("encoding metadata.initializers: %w", err)
		}
		return data, nil
	}
	if err := l.json.Encode(item); err != nil {
		return nil, err
	}
	data := bytes.TrimSuffix(l.buf.Bytes(), []byte("\n"))
	if !initializers.Has(item) {
		return data, nil
	}
	return exposed(data)
}

// exposed returns the JSON of one object with the field.
func exposed(data []byte) ([]byte, error) {
	var content map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &content); err != nil {
		return nil, fmt.Errorf("encoding metadata.initializers: %w", err)
	}
	if err := initializers.Expose(content); err != nil {
		return nil, err
	}
	return json.Marshal(content)
}

// emptyItems is the end of an empty list of typed objects in JSON.
var emptyItems = []byte(`"items":[]}`)

// jsonFrame returns the bytes before and after the items of a list. whole is the list encoded
// without items. jsonFrame returns nil if it does not know the form of whole.
func jsonFrame(whole []byte, _ int) (start, end []byte) {
	start, found := bytes.CutSuffix(bytes.TrimSuffix(whole, []byte("\n")), emptyItems)
	if !found {
		return nil, nil
	}
	return whole[:len(start)+len(emptyItems)-2], []byte("]}\n")
}

// All lists in protobuf, and the message around them, have these numbers of fields; see package
// initializers.
const (
	protobufRaw   protowire.Number = 2
	protobufItems protowire.Number = 2
)

var protobufPrefix = []byte("k8s\x00")

// protobufFrame is jsonFrame for protobuf. There, the message around the list has the length of
// the list: items is the length that the items add.
func protobufFrame(whole []byte, items int) (start, end []byte) {
	message, found := bytes.CutPrefix(whole, protobufPrefix)
	if !found {
		return nil, nil
	}
	for at := len(protobufPrefix); len(message) > 0; {
		number, _, size := protowire.ConsumeField(message)
		if size < 0 {
			return nil, nil
		}
		if number == protobufRaw {
			_, _, tag := protowire.ConsumeTag(message)
			raw, n := protowire.ConsumeBytes(message[tag:])
			if n < 0 {
				return nil, nil
			}
			start = slices.Clone(whole[:at+tag])
			start = protowire.AppendVarint(start, uint64(len(raw)+items))
			return append(start, raw...), whole[at+size:]
		}
		at, message = at+size, message[size:]
	}
	return nil, nil
}
