package admission

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/admissionregistration/v1"

	"github.com/gatehouse-dev/gatehouse/test/hooktest"
)

// crowd returns an engine with many webhooks, some of which match a widget.
func crowd(tb testing.TB, hooks, matching int) (*Engine, *hooktest.Server) {
	tb.Helper()
	s := hooktest.New(tb)
	s.Answer("match", hooktest.Allow)
	url := s.URL + "/match"
	names := make([]string, hooks)
	for i := range names {
		names[i] = fmt.Sprintf("hook%d.example.com", i)
	}
	place := 0
	registered := register(mutating(s, "m", func(w *v1.MutatingWebhook) {
		w.ClientConfig.URL = &url
		w.Rules = rule("*", fmt.Sprintf("group%d.example.com", place%100), "v1", fmt.Sprintf("things%d", place))
		if place < matching {
			w.Rules = rule("CREATE", "example.com", "v1", "widgets")
		}
		place++
	}, names...), validating(s, "v", func(w *v1.ValidatingWebhook) {
		w.Rules = rule("*", "other.example.com", "*", "*")
	}, names[:min(hooks, 10)]...))
	e, err := New(Options{Snapshots: registered, Namespaces: knownNamespaces{}, Serial: true})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(e.Close)
	return e, s
}

func TestNothingMatchesNothingIsAllocated(t *testing.T) {
	e, _ := crowd(t, 10000, 0)
	a, ctx := create(newWidget(nil)), t.Context()
	for name, judge := range map[string]func() error{
		"Admit":               func() error { return e.MutatingWebhooks().Admit(ctx, a, interfaces) },
		"Validate":            func() error { return e.ValidatingWebhooks().Validate(ctx, a, interfaces) },
		"Validate (external)": func() error { return e.ExternalHooks().Validate(ctx, a, interfaces) },
	} {
		allocations := testing.AllocsPerRun(100, func() {
			if err := judge(); err != nil {
				t.Fatal(err)
			}
		})
		if allocations != 0 {
			t.Errorf("%s allocates %v times", name, allocations)
		}
	}
}

// BenchmarkAdmit measures the mutating plugin with many webhooks; the matching webhooks are really
// called.
func BenchmarkAdmit(b *testing.B) {
	for _, hooks := range []int{0, 100, 10000} {
		for _, matching := range []int{0, 1} {
			if hooks < matching {
				continue
			}
			b.Run(fmt.Sprintf("hooks=%d/matching=%d", hooks, matching), func(b *testing.B) {
				e, s := crowd(b, hooks, matching)
				a, ctx := create(newWidget(nil)), b.Context()
				plugin := e.MutatingWebhooks()
				calls := 0
				b.ReportAllocs()
				for b.Loop() {
					if matching > 0 {
						// Annotations are stored in the attributes.
						a = create(a.GetObject())
					}
					if err := plugin.Admit(ctx, a, interfaces); err != nil {
						b.Fatal(err)
					}
					calls += matching
				}
				if got := len(s.Requests("match")); got != calls {
					b.Fatalf("got %d calls, want %d", got, calls)
				}
			})
		}
	}
}
