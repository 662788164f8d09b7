package survive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// label is the pprof label of the goroutines of a part. A goroutine passes its labels on to the
// goroutines that it starts, including goroutines of libraries. Profiles show it, too.
const label = "part"

// known has the parts of this process. A process has one server, except in tests.
var known struct {
	sync.Mutex
	started int
	// running are the parts by the values of their labels.
	running map[string]*part
	// ended are the sentences about the parts that a panic has ended, each once.
	ended []string
}

type part struct {
	name string
	end  context.CancelFunc
}

func init() {
	// k8s.io/apimachinery calls these functions for each panic that HandleCrash catches, and then
	// panics again.
	utilruntime.PanicHandlers = append(utilruntime.PanicHandlers, endPart)
}

// Run runs a part and returns when the part ends: when run returns, or after a panic. The context of
// run ends with the part, so that all goroutines of the part end. A goroutine that run starts must
// defer HandleCrash of k8s.io/apimachinery/pkg/util/runtime, as the goroutines of upstream's loops do.
func Run(ctx context.Context, name string, run func(context.Context)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	value, forget := start(&part{name, cancel})
	defer forget()
	ended := make(chan struct{})
	go pprof.Do(ctx, pprof.Labels(label, value), func(ctx context.Context) {
		defer close(ended)
		defer utilruntime.HandleCrashWithContext(ctx)
		run(ctx)
	})
	<-ended
}

// Begin is Run in a goroutine of its own, for a part whose start function returns. Begin returns when
// begin has returned, with its error, or after a panic in begin. The goroutines that begin has started
// continue until ctx ends.
func Begin(ctx context.Context, name string, begin func(context.Context) error) error {
	begun := make(chan error, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		Run(ctx, name, func(ctx context.Context) {
			err := begin(ctx)
			begun <- err
			if err == nil {
				<-ctx.Done()
			}
		})
	}()
	select {
	case err := <-begun:
		return err
	case <-ended:
		// A panic must not keep a server from starting.
		return nil
	}
}

// Check is a health check that fails after a panic has ended a part.
func Check() healthz.HealthChecker {
	return healthz.NamedCheck("parts", func(*http.Request) error {
		known.Lock()
		defer known.Unlock()
		if len(known.ended) == 0 {
			return nil
		}
		return errors.New(strings.Join(known.ended, "; ") + "; the log has more; restart the server")
	})
}

// Ended returns the number of parts that a panic has ended.
func Ended() int {
	known.Lock()
	defer known.Unlock()
	return len(known.ended)
}

func start(p *part) (value string, forget func()) {
	known.Lock()
	defer known.Unlock()
	known.started++
	value = fmt.Sprintf("%s %d", p.name, known.started)
	if known.running == nil {
		known.running = map[string]*part{}
	}
	known.running[value] = p
	return value, func() {
		known.Lock()
		defer known.Unlock()
		delete(known.running, value)
	}
}

// endPart ends the part whose goroutine has panicked, and the goroutine. In a goroutine outside of all
// parts it does nothing, and the panic continues.
func endPart(ctx context.Context, reason any) {
	if err, ok := reason.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		return
	}
	if !note(reason) {
		return
	}
	runtime.Goexit()
}

// note records the end of the part of this goroutine, and reports whether the goroutine has a part.
func note(reason any) bool {
	known.Lock()
	defer known.Unlock()
	p := known.running[labelHere()]
	if p == nil {
		return false
	}
	sentence := p.name + " has ended by a panic"
	klog.ErrorS(fmt.Errorf("%v", reason), "A part of the server has ended by a panic; the rest goes on; restart the server", "part", p.name)
	if !slices.Contains(known.ended, sentence) {
		known.ended = append(known.ended, sentence)
	}
	p.end()
	return true
}

// labelHere returns the label of the goroutine that calls it; empty for none. Go shows the labels
// of a goroutine in profiles only. One goroutine may be in labelHere at a time, since it is by
// this name that labelHere finds itself.
//
//go:noinline
func labelHere() string {
	var profile bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		return ""
	}
	for goroutine := range strings.SplitSeq(profile.String(), "\n\n") {
		if !strings.Contains(goroutine, "/survive.labelHere+") {
			continue
		}
		_, value, _ := strings.Cut(goroutine, fmt.Sprintf("%q:\"", label))
		value, _, _ = strings.Cut(value, `"`)
		return value
	}
	return ""
}

// Work handles the items of a queue with a number of goroutines until ctx ends. An item whose handling
// returns an error is retried after a while. Work shuts the queue down, and returns when all handling
// has ended.
func Work[T comparable](ctx context.Context, queue workqueue.TypedRateLimitingInterface[T], workers int, handle func(context.Context, T) error) {
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			defer utilruntime.HandleCrash()
			for item, ended := queue.Get(); !ended; item, ended = queue.Get() {
				if err := handle(ctx, item); err == nil || ctx.Err() != nil {
					queue.Forget(item)
				} else {
					queue.AddRateLimited(item)
				}
				queue.Done(item)
			}
		})
	}
	<-ctx.Done()
	queue.ShutDown()
	running.Wait()
}
