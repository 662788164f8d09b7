package customresources

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A webhook that does not answer gets no more calls, and at most as many calls wait for it as may
// run at once. Calls wait for a slow webhook.
func TestTurns(t *testing.T) {
	const limit = 3
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns(limit)
		results := make(chan bool, 10)
		begin := time.Now()
		took := func(n int, want bool, after time.Duration) {
			t.Helper()
			for range n {
				if got := <-results; got != want || time.Since(begin) != after {
					t.Errorf("turn %v after %v, want %v after %v", got, time.Since(begin), want, after)
				}
			}
		}
		take := func(n int) {
			for range n {
				go func() { results <- turns.take() }()
			}
			synctest.Wait()
		}
		take(limit)
		took(limit, true, 0)
		take(limit)
		take(1)
		took(1, false, 0)
		// One call gets an answer shortly before the others would give up.
		time.Sleep(stalled - 1)
		turns.give()
		took(1, true, stalled-1)
		// No other call gets an answer.
		took(limit-1, false, 2*stalled-1)
		take(1)
		took(1, false, 2*stalled-1)
		for range limit {
			turns.give()
		}
		take(limit)
		took(limit, true, 2*stalled-1)
		if n := turns.waiting.Load(); n != 0 {
			t.Errorf("%d wait", n)
		}
	})
}

// Large responses are read one after the other when they would take too much memory together; small
// responses are always read.
func TestLargeAnswersAreBoundedTogether(t *testing.T) {
	response := func(size int) *http.Response {
		return &http.Response{Body: io.NopCloser(bytes.NewReader(make([]byte, size)))}
	}
	const large = smallAnswer + 1
	var held []func()
	for range maxAnswers / maxConverted {
		data, done, err := readAnswer(t.Context(), response(large), 1)
		if err != nil || len(data) != large {
			t.Fatalf("%d bytes, %v", len(data), err)
		}
		held = append(held, done)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := readAnswer(ctx, response(large), 1); err == nil || !strings.Contains(err.Error(), "until other large responses are decoded") {
		t.Errorf("one more: %v", err)
	}
	if _, _, err := readAnswer(ctx, response(smallAnswer), 1); err != nil {
		t.Errorf("a small one: %v", err)
	}
	held[0]()
	// An answer with an object that is too large releases its share of the memory.
	for range 2 {
		if _, _, err := readAnswer(t.Context(), response(maxConverted+1), 1); err == nil || !strings.Contains(err.Error(), "is larger than 8388608 bytes") {
			t.Errorf("more than may be: %v", err)
		}
	}
	for _, done := range held[1:] {
		done()
	}
	if !answers.TryAcquire(maxAnswers) {
		t.Error("not all was given back")
	} else {
		answers.Release(maxAnswers)
	}
}
