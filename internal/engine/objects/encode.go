package objects

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"sync"

	"github.com/gatehouse-dev/gatehouse/internal/engine/review"
)

// encodeContent encodes the content of an unstructured object, to the same bytes as json.Marshal,
// with a fraction of its allocations. Encoding is most of the work for a large object.
func encodeContent(content map[string]any) ([]byte, error) {
	e := encoders.Get().(*contentEncoder)
	e.out, e.keys = e.out[:0], e.keys[:0]
	if err := e.object(content); err != nil {
		return nil, err
	}
	out := bytes.Clone(e.out)
	if cap(e.out) <= maxKept {
		clear(e.keys[:cap(e.keys)])
		encoders.Put(e)
	}
	return out, nil
}

// maxKept bounds, in bytes, the buffers that are reused for the next object.
const maxKept = 1 << 20

var encoders = sync.Pool{New: func() any { return &contentEncoder{} }}

type contentEncoder struct {
	out []byte
	// keys is a stack of the sorted keys of the maps being encoded.
	keys []string
}

func (e *contentEncoder) value(v any) error {
	switch v := v.(type) {
	case nil:
		e.out = append(e.out, "null"...)
	case string:
		return e.text(v)
	case bool:
		e.out = strconv.AppendBool(e.out, v)
	case int64:
		e.out = strconv.AppendInt(e.out, v, 10)
	case map[string]any:
		return e.object(v)
	case []any:
		return e.list(v)
	default:
		return e.marshal(v)
	}
	return nil
}

func (e *contentEncoder) object(m map[string]any) error {
	if m == nil {
		e.out = append(e.out, "null"...)
		return nil
	}
	start := len(e.keys)
	for k := range m {
		e.keys = append(e.keys, k)
	}
	end := len(e.keys)
	slices.Sort(e.keys[start:end])
	e.out = append(e.out, '{')
	for i := start; i < end; i++ {
		if i > start {
			e.out = append(e.out, ',')
		}
		// The stack may move while values are encoded.
		key := e.keys[i]
		if err := e.text(key); err != nil {
			return err
		}
		e.out = append(e.out, ':')
		if err := e.value(m[key]); err != nil {
			return err
		}
	}
	e.keys = e.keys[:start]
	e.out = append(e.out, '}')
	return nil
}

func (e *contentEncoder) list(l []any) error {
	if l == nil {
		e.out = append(e.out, "null"...)
		return nil
	}
	e.out = append(e.out, '[')
	for i, v := range l {
		if i > 0 {
			e.out = append(e.out, ',')
		}
		if err := e.value(v); err != nil {
			return err
		}
	}
	e.out = append(e.out, ']')
	return nil
}

func (e *contentEncoder) text(s string) error {
	if !review.Plain(s) {
		return e.marshal(s)
	}
	e.out = append(e.out, '"')
	e.out = append(e.out, s...)
	e.out = append(e.out, '"')
	return nil
}

func (e *contentEncoder) marshal(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	e.out = append(e.out, data...)
	return nil
}
