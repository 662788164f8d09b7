package params

import (
	"context"
	"maps"
	"sync"
	"time"
)

const (
	// maxFollowed bounds the places that are followed. Params in other places are read again
	// when a read is half a second old.
	maxFollowed = 64
	// idle is how long after the last read of a param its place is followed.
	idle = time.Minute
)

// Written notes that this server wrote, or may have written, the object at a key below a place.
// Requests that come after Written returns are evaluated with that object (S20.8). It is cheap when
// no param is stored there.
func (r *Reader) Written(place, key string) {
	// In strict mode a read serves no request that comes after it began.
	if r.options.Strict || !(*r.places.Load())[place] {
		return
	}
	r.changed(place, key)
}

// changed forgets the reads of the object that was written at a key. If the key is the place
// and a slash, any object below the place may have been written.
func (r *Reader) changed(place, at string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	left := false
	for k := range r.mu.reads {
		switch {
		case k.place != place:
		case k.covers(at):
			delete(r.mu.reads, k)
		default:
			left = true
		}
	}
	_, follows := r.mu.followed[place]
	if places := *r.places.Load(); !left && !follows && places[place] {
		fewer := maps.Clone(places)
		delete(fewer, place)
		r.places.Store(&fewer)
	}
}

// use notes that a param of a place is read, and makes Run follow the place. The lock is held.
func (r *Reader) use(place string, now time.Time) {
	if place == "" || r.options.Strict {
		return
	}
	if places := *r.places.Load(); !places[place] {
		more := maps.Clone(places)
		more[place] = true
		r.places.Store(&more)
	}
	if r.options.Follow == nil {
		return
	}
	if _, follows := r.mu.followed[place]; follows {
		r.mu.followed[place] = now
		return
	}
	if len(r.mu.followed) >= maxFollowed {
		return
	}
	select {
	case r.follow <- place:
		r.mu.followed[place] = now
	default:
	}
}

// Run follows the writes of other servers to the places of params, until ctx ends.
func (r *Reader) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case place := <-r.follow:
			running.Go(func() { r.following(ctx, place) })
		}
	}
}

// following follows a place until no request has asked for a param there for a while.
func (r *Reader) following(ctx context.Context, place string) {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	running.Go(func() {
		defer cancel()
		r.options.Follow(ctx, place+"/", func(key string) { r.changed(place, key) })
	})
	tick := time.NewTicker(idle)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
		case now := <-tick.C:
			r.mu.Lock()
			last := r.mu.followed[place]
			r.mu.Unlock()
			if now.Sub(last) < idle {
				continue
			}
		}
		r.mu.Lock()
		delete(r.mu.followed, place)
		r.mu.Unlock()
		return
	}
}
