package call

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/semaphore"
)

// The memory taken by answers, the request that waits for it, and the request that fails (S4.22).
func TestShares(t *testing.T) {
	const mib = 1 << 20
	// free reports whether a semaphore has the given size available.
	free := func(s *semaphore.Weighted, size int64) bool {
		if !s.TryAcquire(size) {
			return false
		}
		s.Release(size)
		return true
	}
	share := func(m *memory) *Share {
		s := &Share{}
		s.bind(m)
		return s
	}
	target := func() *semaphore.Weighted { return semaphore.NewWeighted(maxOfTarget) }
	// fill reserves all memory for first answers, with separate targets.
	fill := func(t *testing.T, m *memory) (*Share, *Share) {
		a, b := share(m), share(m)
		for _, s := range []*Share{a, b} {
			if _, err := s.enter(t.Context(), target(), maxOfTarget); err != nil {
				t.Fatal(err)
			}
		}
		return a, b
	}
	t.Run("the first large answer of a request waits until another request is over", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := newMemory()
			other, another := fill(t, &m)
			defer another.Release()
			over, end := context.WithCancel(t.Context())
			other.ReleaseAfter(over)
			entered := make(chan error)
			s := share(&m)
			defer s.Release()
			go func() {
				_, err := s.enter(t.Context(), target(), mib)
				entered <- err
			}()
			synctest.Wait()
			select {
			case err := <-entered:
				t.Fatalf("it did not wait: %v", err)
			default:
			}
			end()
			if err := <-entered; err != nil {
				t.Fatal(err)
			}
		})
	})
	t.Run("it fails when its call is over", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := newMemory()
			a, b := fill(t, &m)
			defer a.Release()
			defer b.Release()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			of := target()
			if _, err := share(&m).enter(ctx, of, mib); !errors.As(err, new(*NoRoomError)) {
				t.Errorf("got %v", err)
			}
			if !free(of, maxOfTarget) {
				t.Error("the memory of the webhook server was not given back")
			}
		})
	})
	t.Run("a request that has memory does not wait for more", func(t *testing.T) {
		m := newMemory()
		a, b := fill(t, &m)
		defer b.Release()
		if _, err := a.enter(t.Context(), target(), maxLater); err != nil {
			t.Errorf("no memory is kept for it: %v", err)
		}
		if _, err := a.enter(t.Context(), target(), mib); !errors.As(err, new(*NoRoomError)) {
			t.Errorf("got %v, want an error at once", err)
		}
		if err := a.Take(2 * mib); !errors.As(err, new(*NoRoomError)) {
			t.Errorf("got %v for a patch, want an error at once", err)
		}
		a.Release()
		if !free(m.later, maxLater) || !free(m.first, maxFirst-maxOfTarget) {
			t.Error("not everything was given back")
		}
	})
	t.Run("a server whose answers take all that is for it leaves memory for another", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := newMemory()
			of := target()
			greedy := share(&m)
			defer greedy.Release()
			if _, err := greedy.enter(t.Context(), of, maxOfTarget); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := share(&m).enter(ctx, of, 1); err == nil {
				t.Error("the server has more than its part")
			}
			other := share(&m)
			defer other.Release()
			if _, err := other.enter(t.Context(), target(), mib); err != nil {
				t.Errorf("another server: %v", err)
			}
		})
	})
	t.Run("patches of small answers are free up to a bound", func(t *testing.T) {
		m := newMemory()
		s := share(&m)
		if err := s.Take(freeOfRequest); err != nil {
			t.Fatal(err)
		}
		if !free(m.later, maxLater) {
			t.Error("memory was taken")
		}
		if err := s.Take(mib); err != nil {
			t.Fatal(err)
		}
		if free(m.later, maxLater) {
			t.Error("no memory was taken beyond the bound")
		}
		if err := s.Take(maxFirst + maxLater); err == nil {
			t.Error("more was taken than there is")
		}
		s.Release()
	})
	t.Run("what is not needed is given back at once", func(t *testing.T) {
		m := newMemory()
		of := target()
		s := share(&m)
		e, err := s.enter(t.Context(), of, 10*mib)
		if err != nil {
			t.Fatal(err)
		}
		e.trim(mib)
		if !free(of, maxOfTarget-mib) || !free(m.first, maxFirst-mib) || free(of, maxOfTarget-mib+1) {
			t.Error("other than a mebibyte is taken")
		}
		s.ReleaseAfter(context.Background())
		if !free(of, maxOfTarget) || !free(m.first, maxFirst) {
			t.Error("not everything was given back")
		}
	})
}

// Answers are read completely, whether or not they declare their length, and take memory according
// to their length and content (S4.21, S4.22).
func TestLargeAnswersTakeMemory(t *testing.T) {
	m := newMemory()
	for _, chunked := range []bool{false, true} {
		for _, tt := range []struct {
			name     string
			text     string
			most     int64
			tooLarge bool
		}{
			{"small", strings.Repeat("x", smallAnswer), 0, false},
			{"large", strings.Repeat("x", 2*smallAnswer), 2 * smallAnswer * perByte, false},
			{"as long as is usual", strings.Repeat("x", usualAnswer), usualAnswer * perByte, false},
			{"longer than that", strings.Repeat("x", 3*usualAnswer), 3 * usualAnswer * perByte, false},
			{"with many members", strings.Repeat("{},", usualAnswer/3), usualAnswer * 50, false},
			{"the longest", strings.Repeat("x", defaultMaxResponseBytes), maxOfTarget, false},
			{"too long", strings.Repeat("x", defaultMaxResponseBytes+1), 0, true},
		} {
			t.Run(fmt.Sprintf("%s, chunked %v", tt.name, chunked), func(t *testing.T) {
				answer := &http.Response{ContentLength: int64(len(tt.text)), Body: io.NopCloser(strings.NewReader(tt.text))}
				if chunked {
					answer.ContentLength = -1
				}
				a := admissionCall{max: defaultMaxResponseBytes, share: &Share{}}
				a.target = &target{answers: semaphore.NewWeighted(maxOfTarget)}
				a.share.bind(&m)
				var b bytes.Buffer
				err := a.readAll(t.Context(), &b, answer)
				if errors.As(err, new(*tooLargeError)) != tt.tooLarge || err != nil && !tt.tooLarge {
					t.Fatal(err)
				}
				if !tt.tooLarge && b.String() != tt.text {
					t.Errorf("%d bytes were read, want all %d", b.Len(), len(tt.text))
				}
				if held := a.share.mu.held; held > tt.most || !tt.tooLarge && held < tt.most*4/5 {
					t.Errorf("%d bytes are held, want about %d", held, tt.most)
				}
				a.share.Release()
				if !m.first.TryAcquire(maxFirst) || !m.later.TryAcquire(maxLater) || !a.target.answers.TryAcquire(maxOfTarget) {
					t.Fatal("not everything was given back")
				}
				m.first.Release(maxFirst)
				m.later.Release(maxLater)
			})
		}
	}
}
