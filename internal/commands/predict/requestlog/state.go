package requestlog

import (
	"container/list"
	"encoding/json"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// maxState bounds the total size of a log's noted objects, in bytes.
const maxState = 64 << 20

// state keeps the latest objects of a log, as its requests stored them.
type state struct {
	// known returns objects from elsewhere; nil for none.
	known   func(Key) json.RawMessage
	objects map[Key]*list.Element
	// latest orders the objects by last use, most recent first.
	latest list.List
	bytes  int
}

type held struct {
	key    Key
	object json.RawMessage
	at     time.Time
	// revision is the highest resource version seen for the object.
	revision uint64
}

// find returns the stored object of a key, or nil if it is not known. at is the time when the object was stored.
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

// put notes the stored object of a key; a nil object is no longer known.
func (s *state) put(key Key, object json.RawMessage, at time.Time) {
	if s.objects == nil {
		s.objects = map[Key]*list.Element{}
	}
	h := &held{key: key, object: object, at: at, revision: revision(object)}
	if e := s.objects[key]; e != nil {
		h.revision = max(h.revision, e.Value.(*held).revision)
		s.drop(e)
	}
	s.objects[key] = s.latest.PushFront(h)
	s.bytes += h.size()
	for s.bytes > maxState && s.latest.Len() > 1 {
		s.drop(s.latest.Back())
	}
}

// see notes an object from a read, unless a later revision is already noted.
func (s *state) see(key Key, object json.RawMessage) {
	var at time.Time
	if e := s.objects[key]; e != nil {
		if revision(object) <= e.Value.(*held).revision {
			return
		}
		at = e.Value.(*held).at
	}
	s.put(key, object, at)
}

// revision returns the resource version of an object as a number; 0 if the object has none.
func revision(object json.RawMessage) uint64 {
	n, err := strconv.ParseUint(revisionOf(object), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// forget drops the objects of a resource in a namespace, or in all namespaces, because a request has changed some of
// them.
func (s *state) forget(resource schema.GroupResource, namespace string) {
	for key, e := range s.objects {
		if key.Resource == resource && (namespace == "" || key.Namespace == namespace) {
			h := e.Value.(*held)
			s.bytes -= len(h.object)
			h.object = nil
		}
	}
}

func (s *state) drop(e *list.Element) {
	h := s.latest.Remove(e).(*held)
	s.bytes -= h.size()
	delete(s.objects, h.key)
}

// size returns the approximate memory use, in bytes.
func (h *held) size() int { return len(h.object) + 300 }
