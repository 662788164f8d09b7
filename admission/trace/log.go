package trace

import (
	"context"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

const (
	// logEvery is the minimum time between two lines about a webhook with the same message.
	logEvery = time.Second
	// maxLogged bounds the number of remembered lines; when it is reached, all are forgotten.
	maxLogged = 1024
)

// complaints is the log about webhooks. A webhook that fails usually fails for every request. At
// most one line for each complaint is logged in logEvery, with the number of lines left out before
// it. Complaints that are left out after the last line appear in metrics only.
//
// It is safe for concurrent use; its zero value is ready.
type complaints struct {
	mu struct {
		sync.Mutex
		logged map[complaint]*logged
	}
}

// complaint identifies the subject of a line, independent of the request.
type complaint struct {
	source              registration.Source
	configuration, name string
	message             string
}

type logged struct {
	at      time.Time
	leftOut int
}

// log writes a line with severity error, which is visible at every verbosity.
func (l *complaints) log(ctx context.Context, h *registration.Origin, err error, message string, more ...any) {
	leftOut, due := l.due(complaint{h.Source, h.Configuration, h.Name, message}, time.Now())
	if !due {
		return
	}
	values := append([]any{"webhook", h.Name, "configuration", h.Configuration}, more...)
	if h.Source.Descriptor().Policies {
		values = append([]any{"policy", h.Configuration}, more...)
	}
	if leftOut > 0 {
		values = append(values, "leftOut", leftOut)
	}
	klog.FromContext(ctx).Error(err, message, values...)
}

// due reports whether a line about c is due, and how many lines were left out since the last one.
func (l *complaints) due(c complaint, now time.Time) (leftOut int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.mu.logged[c]
	if last == nil {
		if l.mu.logged == nil || len(l.mu.logged) >= maxLogged {
			l.mu.logged = map[complaint]*logged{}
		}
		l.mu.logged[c] = &logged{at: now}
		return 0, true
	}
	if now.Sub(last.at) < logEvery {
		last.leftOut++
		return 0, false
	}
	leftOut, last.leftOut, last.at = last.leftOut, 0, now
	return leftOut, true
}
