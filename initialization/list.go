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

// list is a list of typed objects that is written item by item. It takes the memory of its
// largest object, and only objects that carry metadata.initializers cost more work.
type list struct {
	*encoder
	items []runtime.Object
	// data has the items that were encoded before the list is written. sizes has the lengths of
	// the other items, in protobuf.
	data  [][]byte
	sizes []int
	buf   bytes.Buffer
	json  *json.Encoder
}

// buffers collect small writes: each write to the connection costs the same, whether it has one
// object or fifty.
var buffers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, bufferSize) }}

const bufferSize = 32 << 10

// encodeList writes a list of typed objects. It returns false and writes nothing if obj is not
// such a list, or has a form that encodeList does not know.
func (e *encoder) encodeList(obj runtime.Object, w io.Writer) (bool, error) {
	if e.form.yaml || e.form.pretty || !e.form.text && !e.form.protobuf || !meta.IsListType(obj) {
		return false, nil
	}
	items, err := meta.ExtractList(obj)
	if err != nil || len(items) == 0 {
		return false, nil
	}
	if _, ok := items[0].(metav1.ObjectMetaAccessor); !ok {
		return false, nil
	}
	// The copy shares the items with obj, until SetList removes them from the copy.
	copied := reflect.New(reflect.TypeOf(obj).Elem())
	copied.Elem().Set(reflect.ValueOf(obj).Elem())
	empty := copied.Interface().(runtime.Object)
	if err := meta.SetList(empty, []runtime.Object{}); err != nil {
		return false, nil
	}
	l := &list{encoder: e, items: items, data: make([][]byte, len(items))}
	l.json = json.NewEncoder(&l.buf)
	if e.form.protobuf {
		if _, ok := items[0].(protobufItem); !ok {
			return false, nil
		}
		l.sizes = make([]int, len(items))
	}
	if err := e.inner.Encode(empty, &l.buf); err != nil {
		return false, err
	}
	whole := slices.Clone(l.buf.Bytes())
	frame := jsonFrame
	if e.form.protobuf {
		frame = l.protobufFrame
	}
	if start, _ := frame(whole, 0); start == nil {
		return false, nil
	}
	if err := l.prepare(); err != nil {
		return false, err
	}
	total := 0
	for i, size := range l.sizes {
		total += protowire.SizeTag(protobufItems) + protowire.SizeBytes(max(size, len(l.data[i])))
	}
	start, end := frame(whole, total)
	return true, l.write(w, start, end)
}

// prepare encodes the items that must be known before the first one is written.
func (l *list) prepare() error {
	room := l.kept.recall(l.items, l.form, l.data)
	var fresh []int
	if room > 0 {
		defer func() { l.kept.keep(l.items, l.form, l.data, fresh) }()
	}
	for i, item := range l.items {
		if l.data[i] != nil {
			continue
		}
		if room > 0 || l.form.protobuf && initializers.Has(item) {
			data, err := l.encodeItem(item)
			if err != nil {
				return err
			}
			l.data[i], fresh = slices.Clone(data), append(fresh, i)
			room -= keptSize(data)
		} else if l.form.protobuf {
			l.sizes[i] = item.(protobufItem).Size()
		}
	}
	return nil
}

// write writes start, the items and end.
func (l *list) write(w io.Writer, start, end []byte) error {
	// Upstream's writer of answers compresses long answers. If the first piece is not short, the
	// writer takes it for the whole answer.
	short := 1
	if l.form.protobuf {
		short = len(protobufPrefix)
	}
	if _, err := w.Write(start[:short]); err != nil {
		return err
	}
	out := buffers.Get().(*bufio.Writer)
	out.Reset(w)
	defer func() {
		out.Reset(nil)
		buffers.Put(out)
	}()
	_, _ = out.Write(start[short:])
	for i, item := range l.items {
		data := l.data[i]
		if data == nil {
			var err error
			if data, err = l.encodeItem(item); err != nil {
				return err
			}
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
	_, _ = out.Write(end)
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
func (l *list) protobufFrame(whole []byte, items int) (start, end []byte) {
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
