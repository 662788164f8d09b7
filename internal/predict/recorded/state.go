package recorded

import (
	"container/list"
	"encoding/json"
	"time"
)

// maxState bounds the size of the noted objects of a log, in bytes.
const maxState = 64 << 20

// state has the latest objects of a log, as its requests stored them.
type state struct {
	// known returns objects from elsewhere; nil for none.
	known   func(Key) json.RawMessage
	objects map[Key]*list.Element
	// latest has the objects that were used last in front.
	latest list.List
	bytes  int
}

type held struct {
	key    Key
	object json.RawMessage
	at     time.Time
}

// find returns the stored object of a key, nil when it is not known. at is when the object was
// stored.
func (s *state) find(key Key) (object json.RawMessage, at time.Time) {
	if e := s.objects[key]; e != nil {
		s.latest.MoveToFront(e)
		h := e.Value.(*held)
		return h.object, h.at
	}
	if s.known != nil {
		return s.known(key), time.Time{}
	}
	return nil, time.Time{}
}

// put notes the stored object of a key; nil means that it is not known any more.
func (s *state) put(key Key, object json.RawMessage, at time.Time) {
	if s.objects == nil {
		s.objects = map[Key]*list.Element{}
	}
	if e := s.objects[key]; e != nil {
		s.drop(e)
	}
	h := &held{key: key, object: object, at: at}
	s.objects[key] = s.latest.PushFront(h)
	s.bytes += h.size()
	for s.bytes > maxState && s.latest.Len() > 1 {
		s.drop(s.latest.Back())
	}
}

func (s *state) drop(e *list.Element) {
	h := s.latest.Remove(e).(*held)
	s.bytes -= h.size()
	delete(s.objects, h.key)
}

// size is about how much memory it takes.
func (h *held) size() int { return len(h.object) + 300 }
