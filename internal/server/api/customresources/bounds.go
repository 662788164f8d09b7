package customresources

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// maxConverted bounds one object that a conversion webhook returns, in bytes of JSON, as the
	// embedded etcd bounds stored objects.
	maxConverted = 8 << 20
	// maxAnswers bounds the responses, beyond smallAnswer bytes each, that are read and decoded at
	// once. A decoded response takes ten times as much memory.
	maxAnswers, smallAnswer = 32 << 20, 256 << 10
	// maxText bounds the text of an error, in bytes: maxShown for the answer of a webhook, and
	// the rest for our own words.
	maxText = maxShown + 1<<10
	// defaultConversions bounds the concurrent calls of one webhook.
	defaultConversions = 50
	// stalled is the time after which waiting calls fail if no call of the webhook begins or ends.
	stalled = time.Second
)

// answers bounds the bytes of large responses in memory, of all webhooks together.
var answers = semaphore.NewWeighted(maxAnswers)

// readAnswer reads the response of a webhook about some objects, decompressed. The caller calls
// done when it has decoded the response.
func readAnswer(ctx context.Context, response *http.Response, objects int) (data []byte, done func(), err error) {
	limit := min(int64(objects)*maxConverted, maxAnswers)
	done = func() {}
	data, err = io.ReadAll(io.LimitReader(response.Body, smallAnswer+1))
	if err == nil && len(data) > smallAnswer {
		if err = answers.Acquire(ctx, limit); err != nil {
			return nil, done, fmt.Errorf("waiting until other large responses are decoded: %w", context.Cause(ctx))
		}
		done = func() { answers.Release(limit) }
		data, err = io.ReadAll(io.LimitReader(io.MultiReader(bytes.NewReader(data), response.Body), limit+1))
	}
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("the response about %d objects is larger than %d bytes", objects, limit)
	} else if err != nil {
		err = fmt.Errorf("reading the response: %w", err)
	}
	if err != nil {
		done()
		return nil, func() {}, err
	}
	return data, done, nil
}

// turns bounds the calls of one webhook. Each call belongs to a request that holds a place in
// the server's limit of requests; a webhook that does not answer must not take all places. It
// is safe for concurrent use.
type turns struct {
	calls   chan struct{}
	waiting atomic.Int64
	// moved is when a call last began without waiting or ended, in nanoseconds.
	moved atomic.Int64
}

func newTurns(limit int) *turns { return &turns{calls: make(chan struct{}, limit)} }

// take waits for a turn, and reports whether it got one. It gives up when no other call began
// or ended for the time of stalled, or when more calls would wait than may run at once.
func (t *turns) take() bool {
	select {
	case t.calls <- struct{}{}:
		t.moved.Store(time.Now().UnixNano())
		return true
	default:
	}
	defer t.waiting.Add(-1)
	if t.waiting.Add(1) > int64(cap(t.calls)) {
		return false
	}
	for {
		left := stalled - time.Since(time.Unix(0, t.moved.Load()))
		if left <= 0 {
			return false
		}
		select {
		case t.calls <- struct{}{}:
			return true
		case <-time.After(left):
		}
	}
}

func (t *turns) give() {
	t.moved.Store(time.Now().UnixNano())
	<-t.calls
}

// cut shortens a text from outside.
func cut(text string) string {
	if len(text) <= maxText {
		return text
	}
	return fmt.Sprintf("%s... (%d bytes in all)", bytes.ToValidUTF8([]byte(text[:maxText]), nil), len(text))
}
