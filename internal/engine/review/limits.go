package review

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"
)

const (
	// maxCopied bounds, in bytes of JSON, the values copied by the operations of a patch.
	// kube-apiserver has the same bound: copying an object into itself doubles it, and a few dozen
	// operations would fill any memory.
	maxCopied = 3 << 20
	// maxMoved bounds the total number of places by which the operations of a patch may move
	// elements of lists. Each operation at the front of a list moves all elements behind it, so
	// that some thousand operations on a long list would take minutes. This number of places takes
	// some tenths of a second. It is enough to empty a list of 11,000 elements from the front.
	maxMoved = 64 << 20
	// maxDepth bounds the nesting of objects. The JSON decoder has the same bound: a deeper object
	// could be stored, but never read again.
	maxDepth = 10_000
	// lookEvery is the amount of work between checks of the context. The unit is an operation;
	// moving movedPerUnit elements takes at most as long.
	lookEvery, movedPerUnit = 1000, 1 << 10
)

// LimitError is the error of a patch that exceeds a limit (S5.33).
type LimitError struct{ problem string }

func (e *LimitError) Error() string { return e.problem }

var (
	errMoved = &LimitError{fmt.Sprintf("the patch moves elements of lists by more than %d places", maxMoved)}
	errDeep  = errors.New("the patch nests the object more than 10000 levels deep")
)

// Room is the available memory for the results of a patch.
type Room interface {
	// Take reserves memory, or returns an error if there is not enough.
	Take(bytes int64) error
}

// Weight estimates the memory, in bytes, of JSON that is decoded and copied once. The cost does not
// depend on the content of the text.
func Weight(text []byte) int64 {
	s := size{text: len(text)}
	for _, mark := range []string{",", "{", "["} {
		s.marks += bytes.Count(text, []byte(mark))
	}
	return s.weight()
}

// size is the length of a value as JSON, in bytes, and the number of its commas and opening
// brackets.
type size struct{ text, marks int }

func (s *size) weight() int64 {
	// An empty object and its place in a list take 64 bytes, for three bytes of text.
	const structure = 64
	return 2*int64(s.text) + structure*int64(s.marks)
}

// add adds a value in the encoding of encoding/json, which the library of kube-apiserver also
// counts. It stops soon after the text exceeds most.
func (s *size) add(v any, most int) {
	if s.text > most {
		return
	}
	if m, ok := asMap(v); ok && m != nil {
		s.container(len(m))
		for k, e := range m {
			s.text += quoted(k) + len(":")
			s.add(e, most)
		}
		return
	}
	if l, ok := asList(v); ok && l != nil {
		s.container(len(l))
		for _, e := range l {
			s.add(e, most)
		}
		return
	}
	switch v := v.(type) {
	case string:
		s.text += quoted(v)
	case int64:
		s.text += len(strconv.AppendInt(make([]byte, 0, 20), v, 10))
	default:
		s.text += marshalled(v)
	}
}

// container adds the brackets of an object or array, and the commas between its elements.
func (s *size) container(elements int) {
	s.marks += max(elements, 1)
	s.text += len("{}") + max(elements-1, 0)
}

// quoted returns the length of a string as JSON.
func quoted(s string) int {
	if Plain(s) {
		return len(s) + len(`""`)
	}
	return marshalled(s)
}

// Plain reports whether a string needs no escapes in JSON.
func Plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return false
		}
	}
	return true
}

func marshalled(v any) int {
	text, err := json.Marshal(v)
	if err != nil {
		return 0
	}
	return len(text)
}

// work counts the work of the operations of one patch, and stops it at the limits.
type work struct {
	ctx context.Context
	// room is nil if the memory has no bound except maxCopied.
	room          Room
	copied, moved int
	// shared reports whether a value may be in two places.
	shared bool
	// unseen is the remaining work before the next check of the context.
	unseen int
}

// begin counts an operation, and returns the error of the context if a check is due.
func (w *work) begin() error {
	if w.unseen--; w.unseen > 0 {
		return nil
	}
	w.unseen = lookEvery
	return w.ctx.Err()
}

// move counts elements of a list that change their place.
func (w *work) move(elements int) error {
	w.unseen -= elements / movedPerUnit
	if w.moved += elements; w.moved > maxMoved {
		return errMoved
	}
	return nil
}

// copy counts a copied value, and reserves its memory.
func (w *work) copy(v any) error {
	if v == nil {
		return nil
	}
	var s size
	s.add(v, maxCopied)
	if w.copied += s.text; w.copied > maxCopied {
		// This is the text of kube-apiserver.
		return &LimitError{fmt.Sprintf("Unable to complete the copy, the accumulated size increase of copy is %d, exceeding the limit %d", w.copied, maxCopied)}
	}
	if w.room != nil {
		if err := w.room.Take(s.weight()); err != nil {
			return err
		}
	}
	w.shared = true
	return nil
}

// plain returns a deep copy of v without the types that mark copies.
func plain(v any) any {
	if m, ok := asMap(v); ok && m != nil {
		c := make(map[string]any, len(m))
		for k, e := range m {
			c[k] = plain(e)
		}
		return c
	}
	if l, ok := asList(v); ok && l != nil {
		c := make([]any, len(l))
		for i, e := range l {
			c[i] = plain(e)
		}
		return c
	}
	return v
}

// tooDeep reports whether v has more levels than the given number.
func tooDeep(v any, levels int) bool {
	if m, ok := asMap(v); ok {
		for _, e := range m {
			if levels == 0 || tooDeep(e, levels-1) {
				return true
			}
		}
	} else if l, ok := asList(v); ok {
		for _, e := range l {
			if levels == 0 || tooDeep(e, levels-1) {
				return true
			}
		}
	}
	return false
}
