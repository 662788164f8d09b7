package recorded

import (
	"container/list"
	"encoding/json"
	"time"
)

// maxState is how many bytes the objects may have that a log has shown.
const maxState = 64 << 20

// state are the objects as a log has shown them, the latest of them.
type state struct {
	// Known has what else is known; nil for nothing.
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

// find returns what is stored under a key, nil when that is not known. at is when it was.
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

// put notes what is stored; nil means that this is not known any more.
func (s *state) put(key Key, object json.RawMessage, at time.Time) {
	if s.objects == nil {
		s.objects = map[Key]*list.Element{}
	}
	if e := s.objects[key]; e != nil {
		s.drop(e)
	}
	h := &held{key: key, object: append(json.RawMessage(nil), object...), at: at}
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
