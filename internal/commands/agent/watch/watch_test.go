package watch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

// S32.12: work is done at once, once for a burst of changes, after half a minute of changes without a pause, every
// hour, and a minute after an error.
func TestWhenWorkIsDone(t *testing.T) {
	var fails = errors.New("no")
	for name, tt := range map[string]struct {
		// changes arrive at these times, and the runs end with these errors.
		changes []time.Duration
		errs    []error
		want    []time.Duration
		until   time.Duration
	}{
		"at once, and every hour": {nil, nil, []time.Duration{0, time.Hour, 2 * time.Hour}, 150 * time.Minute},
		"one change":              {[]time.Duration{10 * time.Second}, nil, []time.Duration{0, 12 * time.Second}, time.Minute},
		"a burst": {[]time.Duration{10 * time.Second, 11 * time.Second, 12 * time.Second, 12 * time.Second}, nil,
			[]time.Duration{0, 14 * time.Second}, time.Minute},
		"changes without end": {slices.Collect(func(yield func(time.Duration) bool) {
			for at := 10 * time.Second; at < 50*time.Second && yield(at); at += time.Second {
			}
		}), nil, []time.Duration{0, 40 * time.Second, 51 * time.Second}, 2 * time.Minute},
		"an error": {nil, []error{fails, fails}, []time.Duration{0, time.Minute, 2 * time.Minute}, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), tt.until)
				defer cancel()
				begin, changed := time.Now(), make(chan struct{}, 1)
				go func() {
					for _, at := range tt.changes {
						time.Sleep(at - time.Since(begin))
						select {
						case changed <- struct{}{}:
						default:
						}
					}
				}()
				var got []time.Duration
				repeat(ctx, changed, func() error {
					got = append(got, time.Since(begin))
					if len(got) <= len(tt.errs) {
						return tt.errs[len(got)-1]
					}
					return nil
				})
				if !slices.Equal(got, tt.want) {
					t.Errorf("done at %v, want %v", got, tt.want)
				}
			})
		})
	}
}

// Both sources publish their findings concurrently.
func TestSourcesTellAtTheSameTime(t *testing.T) {
	registerMetrics()
	client := fake.NewClientset()
	w := &Watcher{client: client, known: map[source]map[string]bool{ofLint: {}, ofAudit: {}}}
	var telling sync.WaitGroup
	for _, of := range []source{ofLint, ofAudit} {
		telling.Go(func() {
			for i := range 200 {
				one := finding{report.Resource{Kind: "Pod", Namespace: "shop", Name: "web", ID: fmt.Sprint(i)}, "rule", report.Error}
				if err := w.tell(t.Context(), of, []finding{one}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	telling.Wait()
	events, err := client.CoreV1().Events("shop").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(events.Items) != 400 {
		t.Errorf("%d events, %v", len(events.Items), err)
	}
}

// S32.13: only changes of policies and bindings start an audit of the objects.
func TestWhatHasObjectsAudited(t *testing.T) {
	for resource, want := range map[string]bool{
		"validatingadmissionpolicies": true, "mutatingadmissionpolicybindings": true, "validatingwebhookconfigurations": false, "customresourcedefinitions": false,
	} {
		if got := judges(schema.GroupVersionResource{Group: registration.GroupName, Version: "v1", Resource: resource}); got != want {
			t.Errorf("%s: %v", resource, got)
		}
	}
}

// S32.15: messages of other authors are put on one line, shortened, and freed of control characters.
func TestMessagesArePlain(t *testing.T) {
	if got := plain("a\x1b[2J\n\tb\u202e  c"); got != "a [2J b c" {
		t.Errorf("%q", got)
	}
	if got := plain(strings.Repeat("ä", maxMessage)); len(got) > maxMessage+len(" ...") || !strings.HasSuffix(got, "ä ...") {
		t.Errorf("%d bytes", len(got))
	}
}

// S32.16: the rights allow to list the watched objects, and never Secrets; without work there are no rights.
func TestRights(t *testing.T) {
	for _, tt := range []struct {
		lint       bool
		audited    []string
		has, lacks string
	}{
		{lint: true, has: "endpointslices", lacks: "jobs"},
		{audited: []string{"jobs.batch"}, has: "jobs", lacks: "endpointslices"},
		{true, []string{"pods"}, "pods", "jobs"},
	} {
		text, err := RBAC("there", "it", tt.lint, tt.audited)
		if err != nil || !strings.Contains(text, "- "+tt.has) || strings.Contains(text, tt.lacks) || strings.Contains(text, "- secrets") || strings.Contains(text, "'*'") {
			t.Errorf("%+v: %v\n%s", tt, err, text)
		}
	}
	if text, err := RBAC("there", "it", false, nil); err != nil || text != "" {
		t.Errorf("%v %s", err, text)
	}
}
