package call

import (
	"container/list"
	"errors"
	"net/url"
	"sync"
)

// targets keeps the most recently used targets. It is safe for concurrent use.
type targets struct {
	max int
	// mu is not held while a target is made or retired.
	mu struct {
		sync.Mutex
		byKey  map[key]*list.Element
		recent list.List // of *target, the latest in front
		closed bool
	}
}

var errClosed = errors.New("the caller is closed")

// acquire returns the target for a webhook's address; the caller releases it after use. The bundle
// is copied only for a new target.
func (c *Caller) acquire(service bool, u *url.URL, bundle []byte, id identity) (*target, error) {
	ts := &c.targets
	ts.mu.Lock()
	if ts.mu.closed {
		ts.mu.Unlock()
		return nil, errClosed
	}
	if e := ts.mu.byKey[key{service, u.Host, string(bundle), id.name}]; e != nil {
		defer ts.mu.Unlock()
		return ts.use(e), nil
	}
	ts.mu.Unlock()

	k := key{service, u.Host, string(bundle), id.name}
	made, err := c.newTarget(k, u, id)
	if err != nil {
		return nil, err
	}
	t, dropped, err := ts.add(made)
	if dropped != nil {
		dropped.retire()
	}
	return t, err
}

// use marks a target as the most recent one. The caller holds the lock.
func (ts *targets) use(e *list.Element) *target {
	ts.mu.recent.MoveToFront(e)
	t := e.Value.(*target)
	t.users.Add(1)
	return t
}

// add puts a target into the cache unless its key is already there. It returns the target to use,
// and the target that was dropped, if any.
func (ts *targets) add(made *target) (t, dropped *target, err error) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.mu.closed {
		return nil, nil, errClosed
	}
	if e := ts.mu.byKey[made.key]; e != nil {
		return ts.use(e), nil, nil
	}
	ts.mu.byKey[made.key] = ts.mu.recent.PushFront(made)
	made.users.Add(1)
	if ts.mu.recent.Len() > ts.max {
		e := ts.mu.recent.Back()
		dropped = ts.mu.recent.Remove(e).(*target)
		delete(ts.mu.byKey, dropped.key)
	}
	return made, dropped, nil
}

// close retires all targets; later calls of acquire fail.
func (ts *targets) close() {
	ts.mu.Lock()
	var all []*target
	for e := ts.mu.recent.Front(); e != nil; e = e.Next() {
		all = append(all, e.Value.(*target))
	}
	ts.mu.recent.Init()
	ts.mu.byKey = nil
	ts.mu.closed = true
	ts.mu.Unlock()
	for _, t := range all {
		t.retire()
	}
}
