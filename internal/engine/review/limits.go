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
	// maxCopied bounds what the copy operations of a patch may copy, in bytes of JSON. It is
	// the bound of kube-apiserver: copying an object into itself doubles it, and a few dozen
	// operations would fill any memory.
	maxCopied = 3 << 20
	// maxMoved bounds by how many places the operations of a patch may move elements of lists,
	// all together. Each operation at the front of a list moves all elements behind it, so that
	// some thousand operations on a long list would take minutes. These many places take some
	// tenths of a second. They are enough to empty a list of 11,000 elements from the front.
	maxMoved = 64 << 20
	// maxDepth bounds how deep objects may be nested. It is that of the decoder of
	// JSON: a deeper object could be stored, and never be read again.
	maxDepth = 10_000
	// lookEvery is after how much work the context is looked at. The unit is an operation;
	// movedPerUnit elements take at most as long.
	lookEvery, movedPerUnit = 1000, 1 << 10
)

// LimitError means that a patch was given up, because it does more than a patch may (S5.33).
type LimitError struct{ problem string }

func (e *LimitError) Error() string { return e.problem }

var (
	errMoved = &LimitError{fmt.Sprintf("the patch moves elements of lists by more than %d places", maxMoved)}
	errDeep  = errors.New("the patch nests the object more than 10000 levels deep")
)

// Room is memory that what a patch makes may take.
type Room interface {
	// Take takes so many bytes, or returns an error that says why there are not so many.
	Take(bytes int64) error
}

// Weight returns about how many bytes of memory JSON takes that is decoded and copied once. The
// cost does not depend on what is in the text.
func Weight(text []byte) int64 {
	s := size{text: len(text)}
	for _, mark := range []string{",", "{", "["} {
		s.marks += bytes.Count(text, []byte(mark))
	}
	return s.weight()
}

// size is how long a value is as JSON, in bytes, and how many commas and opening brackets that has.
type size struct{ text, marks int }

func (s *size) weight() int64 {
	// An empty object and its place in a list take 64 bytes, for three bytes of text.
	const structure = 64
	return 2*int64(s.text) + structure*int64(s.marks)
}

// add adds a value as encoding/json writes it, which is how the library of kube-apiserver counts.
// It stops soon after the text is longer than most.
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

// quoted returns how long a string is as JSON.
func quoted(s string) int {
	if Plain(s) {
		return len(s) + len(`""`)
	}
	return marshalled(s)
}

// Plain reports whether nothing in a string is escaped in JSON.
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

// work counts what the operations of one patch have done, and ends it when that is too much.
type work struct {
	ctx context.Context
	// room is nil if the memory has no bound but that of copied.
	room          Room
	copied, moved int
	// shared reports whether a value may stand in two places.
	shared bool
	// unseen is how much may still be done before the context is looked at.
	unseen int
}

// begin counts an operation, and returns the error of the context if it is time to look at it.
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

// copy counts a value that is copied, and takes the memory for that.
func (w *work) copy(v any) error {
	if v == nil {
		return nil
	}
	var s size
	s.add(v, maxCopied)
	if w.copied += s.text; w.copied > maxCopied {
		// These are upstream's words.
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

// plain returns a deep copy of v without the types that stand for copies.
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

// tooDeep reports whether v has more than so many levels.
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
