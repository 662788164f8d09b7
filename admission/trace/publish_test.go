package trace

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// publish publishes a trace and returns the results of its readers.
func publish(t *testing.T, level auditinternal.Level, tr *Run) published {
	t.Helper()
	ctx := audit.WithAuditContext(t.Context())
	if err := audit.AuditContextFrom(ctx).Init(audit.RequestAuditConfig{Level: level}, nil); err != nil {
		t.Fatal(err)
	}
	ctx = request.WithLatencyTrackers(ctx)
	recorder := &warnings{}
	ctx = warning.WithWarningRecorder(ctx, recorder)
	a := admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{}, "", "", schema.GroupVersionResource{}, "",
		admission.Create, &metav1.CreateOptions{}, false, &user.DefaultInfo{})
	plugin := admission.WithAudit(publisher{tr}).(admission.MutationInterface)
	if err := plugin.Admit(ctx, a, nil); err != nil {
		t.Fatal(err)
	}
	return published{
		Annotations: audit.AuditContextFrom(ctx).GetEventAnnotations(),
		Warnings:    *recorder,
		latencies:   request.AuditAnnotationsFromLatencyTrackers(ctx),
	}
}

type published struct {
	Annotations map[string]string
	Warnings    []string
	latencies   map[string]string
}

// publisher is a plugin that publishes a trace.
type publisher struct{ trace *Run }

func (p publisher) Handles(admission.Operation) bool { return true }

func (p publisher) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	new(Publisher).Publish(ctx, a, p.trace)
	return nil
}

type warnings []string

func (w *warnings) AddWarning(agent, text string) { *w = append(*w, agent+text) }

// counted returns the metrics of a webhook with a name, histograms by their count.
func counted(t *testing.T, webhook string) map[string]float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			named := false
			for _, l := range m.GetLabel() {
				if l.GetName() == "name" {
					named = l.GetValue() == webhook
					continue
				}
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			if !named {
				continue
			}
			slices.Sort(labels)
			value := m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			found[strings.TrimPrefix(f.GetName(), "apiserver_admission_")+" "+strings.Join(labels, " ")] = value
		}
	}
	return found
}

func TestMetrics(t *testing.T) {
	const (
		total      = "webhook_request_total code=%s operation=CREATE rejected=%s type=%s"
		duration   = "webhook_admission_duration_seconds operation=CREATE rejected=%s type=%s"
		rejections = "webhook_rejection_count error_type=%s operation=CREATE rejection_code=%s type=%s"
		failOpen   = "webhook_fail_open_count type=%s"
		spared     = "gatehouse_admission_webhook_spared_requests_total mode=Audit type=%s would=reject"
	)
	key := func(format string, args ...any) string { return fmt.Sprintf(format, args...) }
	tests := []struct {
		name   string
		source registration.Source
		call   Call
		want   []string
	}{
		{
			name: "S10.1 S10.2 allowed, mutating", source: registration.Mutating, call: Call{Code: 200},
			want: []string{key(total, "200", "false", "admit"), key(duration, "false", "admit")},
		},
		{
			name: "S10.1 allowed, validating", source: registration.Validating, call: Call{Code: 200},
			want: []string{key(total, "200", "false", "validating"), key(duration, "false", "validating")},
		},
		{
			name: "S12.18 allowed, external", source: registration.External, call: Call{Code: 200},
			want: []string{key(total, "200", "false", "validating"), key(duration, "false", "validating")},
		},
		{
			name: "S10.2 S10.3 denied", call: Call{Verdict: Denied, Code: 403},
			want: []string{key(total, "403", "true", "admit"), key(duration, "true", "admit"), key(rejections, "no_error", "403", "admit")},
		},
		{
			name: "S10.2 codes above 600 are reported as 600", call: Call{Verdict: Denied, Code: 777},
			want: []string{key(total, "600", "true", "admit"), key(duration, "true", "admit"), key(rejections, "no_error", "600", "admit")},
		},
		{
			name: "S10.3 failed", call: Call{Verdict: Failed, Code: 503},
			want: []string{key(total, "503", "true", "admit"), key(duration, "true", "admit"), key(rejections, "calling_webhook_error", "503", "admit")},
		},
		{
			name: "S10.2 S7.3 failed and ignored", call: Call{Verdict: Failed, Code: 503, Ignored: true},
			want: []string{key(total, "503", "false", "admit"), key(duration, "false", "admit"), key(failOpen, "admit")},
		},
		{
			name: "S7.10 the client is gone, Fail", call: Call{Verdict: Failed, Code: 503, ClientGone: true},
			want: []string{key(total, "503", "true", "admit"), key(duration, "true", "admit")},
		},
		{
			name: "S7.10 the client is gone, Ignore", call: Call{Verdict: Failed, Code: 503, ClientGone: true, Ignored: true},
			want: []string{key(total, "503", "false", "admit"), key(duration, "false", "admit")},
		},
		{
			name: "S28.2 denied by a soft webhook", call: Call{UID: "u", Verdict: Denied, Code: 403, Enforcement: Enforcement{Mode: registration.ModeAudit}},
			want: []string{key(total, "403", "false", "admit"), key(duration, "false", "admit"), key(spared, "admit")},
		},
		{
			name: "S10.3 refused", call: Call{Verdict: Refused},
			want: []string{key(total, "0", "true", "admit"), key(duration, "true", "admit"), key(rejections, "apiserver_internal_error", "0", "admit")},
		},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			hook := fmt.Sprintf("metrics-%d.example.com", i)
			tt.call.Entry = registration.Origin{Source: tt.source, Name: hook}
			if tt.call.Verdict != Allowed {
				tt.call.Err = errors.New("cause")
			}
			before := counted(t, hook)
			publish(t, auditinternal.LevelMetadata, &Run{Source: tt.source, Calls: []Call{tt.call}})
			slices.Sort(tt.want)
			got := counted(t, hook)
			if diff := cmp.Diff(tt.want, slices.Sorted(maps.Keys(got))); diff != "" {
				t.Errorf("metrics (-want +got):\n%s", diff)
			}
			for name, value := range got {
				if grew := value - before[name]; grew != 1 {
					t.Errorf("%s grew by %v, want 1", name, grew)
				}
			}
		})
	}
}

func TestMatchConditionMetrics(t *testing.T) {
	for source, want := range map[registration.Source]map[string]float64{
		registration.Mutating: {
			"match_condition_evaluation_seconds kind=webhook operation=CREATE type=admit":      2,
			"match_condition_evaluation_errors_total kind=webhook operation=CREATE type=admit": 2,
			"match_condition_exclusions_total kind=webhook operation=CREATE type=admit":        1,
		},
		registration.Validating: {
			"match_condition_evaluation_seconds kind=webhook operation=CREATE type=validating":      2,
			"match_condition_evaluation_errors_total kind=webhook operation=CREATE type=validating": 2,
			"match_condition_exclusions_total kind=webhook operation=CREATE type=validate":          1,
		},
	} {
		t.Run("S10.1 "+source.String(), func(t *testing.T) {
			hook := registration.Origin{Source: source, Name: "conditions." + source.String()}
			before := counted(t, hook.Name)
			publish(t, auditinternal.LevelMetadata, &Run{Source: source, Conditions: []Condition{
				{Entry: hook, Latency: time.Millisecond, Errors: 2},
				{Entry: hook, Latency: time.Millisecond, Excluded: true},
			}})
			grew := counted(t, hook.Name)
			for name := range grew {
				grew[name] -= before[name]
			}
			if diff := cmp.Diff(want, grew); diff != "" {
				t.Errorf("metrics (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnnotations(t *testing.T) {
	hook := func(source registration.Source, name string) registration.Origin {
		return registration.Origin{Source: source, Configuration: "c", Name: name}
	}
	tests := []struct {
		name  string
		level auditinternal.Level
		trace Run
		want  map[string]string
	}{
		{
			name:  "S5.25 S5.26 mutating hooks, indexed among all, the patch at level Request",
			level: auditinternal.LevelRequest,
			trace: Run{Source: registration.Mutating, Round: 1, Calls: []Call{
				{Entry: hook(registration.Mutating, "a.b.c"), Position: 3, Patch: []byte(`[{"op":"remove","path":"/x"}]`), Mutated: true},
				{Entry: hook(registration.Mutating, "d.e.f"), Position: 7, Matched: 1, Verdict: Denied, Err: errors.New("no")},
			}},
			want: map[string]string{
				"mutation.webhook.admission.k8s.io/round_1_index_3": `{"configuration":"c","webhook":"a.b.c","mutated":true}`,
				"patch.webhook.admission.k8s.io/round_1_index_3":    `{"configuration":"c","webhook":"a.b.c","patch":[{"op":"remove","path":"/x"}],"patchType":"JSONPatch"}`,
				"mutation.webhook.admission.k8s.io/round_1_index_7": `{"configuration":"c","webhook":"d.e.f","mutated":false}`,
			},
		},
		{
			name:  "S5.26 no patch at level Metadata",
			level: auditinternal.LevelMetadata,
			trace: Run{Source: registration.Mutating, Calls: []Call{
				{Entry: hook(registration.Mutating, "a.b.c"), Patch: []byte(`[{"op":"remove","path":"/x"}]`)},
			}},
			want: map[string]string{
				"mutation.webhook.admission.k8s.io/round_0_index_0": `{"configuration":"c","webhook":"a.b.c","mutated":false}`,
			},
		},
		{
			name:  "S5.27 S7.10 failed open, but not when the client is gone",
			level: auditinternal.LevelMetadata,
			trace: Run{Source: registration.Mutating, Calls: []Call{
				{Entry: hook(registration.Mutating, "a.b.c"), Position: 4, Verdict: Failed, Ignored: true, Err: errors.New("x")},
				{Entry: hook(registration.Mutating, "d.e.f"), Position: 5, Verdict: Failed, Ignored: true, ClientGone: true, Err: errors.New("x")},
			}},
			want: map[string]string{
				"mutation.webhook.admission.k8s.io/round_0_index_4":             `{"configuration":"c","webhook":"a.b.c","mutated":false}`,
				"failed-open.mutation.webhook.admission.k8s.io/round_0_index_4": `a.b.c`,
				"mutation.webhook.admission.k8s.io/round_0_index_5":             `{"configuration":"c","webhook":"d.e.f","mutated":false}`,
			},
		},
		{
			name:  "S6.7 validating hooks are indexed among those that matched",
			level: auditinternal.LevelMetadata,
			trace: Run{Source: registration.Validating, Calls: []Call{
				{Entry: hook(registration.Validating, "a.b.c"), Position: 4, Matched: 1, Verdict: Failed, Ignored: true, Err: errors.New("x")},
			}},
			want: map[string]string{"failed-open.validating.webhook.admission.k8s.io/round_0_index_1": `a.b.c`},
		},
		{
			name:  "S12.18 external hooks have a prefix of their own",
			level: auditinternal.LevelMetadata,
			trace: Run{Source: registration.External, Calls: []Call{
				{Entry: hook(registration.External, "a.b.c"), Position: 4, Matched: 2, Verdict: Failed, Ignored: true, Err: errors.New("x")},
			}},
			want: map[string]string{"failed-open.external.webhook.admission.k8s.io/round_0_index_2": `a.b.c`},
		},
		{
			name:  "S4.17 the webhook's own, whatever it decided; bad keys and second values are dropped",
			level: auditinternal.LevelMetadata,
			trace: Run{Source: registration.Validating, Calls: []Call{
				{Entry: hook(registration.Validating, "a.b.c"), AuditAnnotations: map[string]string{"k": "1", "x/y": "2", "%": "3"}},
				{Entry: hook(registration.Validating, "a.b.c"), AuditAnnotations: map[string]string{"k": "other"}},
				{Entry: hook(registration.Validating, "d.e.f"), AuditAnnotations: map[string]string{"k": "4"}, Verdict: Denied, Err: errors.New("no")},
			}},
			want: map[string]string{"a.b.c/k": "1", "d.e.f/k": "4"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := publish(t, tt.level, &tt.trace)
			if diff := cmp.Diff(tt.want, got.Annotations); diff != "" {
				t.Errorf("annotations (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	hook := registration.Origin{Name: "warnings.example.com"}
	got := publish(t, auditinternal.LevelMetadata, &Run{Calls: []Call{
		{Entry: hook, Warnings: []string{"one", "two"}},
		{Entry: hook, Warnings: []string{"three"}, Verdict: Denied, Err: errors.New("no")},
	}})
	if diff := cmp.Diff([]string{"one", "two", "three"}, got.Warnings); diff != "" {
		t.Errorf("S4.18 warnings (-want +got):\n%s", diff)
	}
}

func TestLatencies(t *testing.T) {
	call := func(latency time.Duration, uid types.UID) Call {
		return Call{Entry: registration.Origin{Name: "latency.example.com"}, Latency: latency, UID: uid}
	}
	calls := []Call{call(time.Second, "1"), call(2*time.Second, "2"), call(time.Hour, "")}
	for source, want := range map[registration.Source]map[string]string{
		registration.Mutating:   {"apiserver.latency.k8s.io/mutating-webhook": "3s"},
		registration.Validating: {"apiserver.latency.k8s.io/validating-webhook": "2s"},
	} {
		got := publish(t, auditinternal.LevelMetadata, &Run{Source: source, Calls: calls})
		if diff := cmp.Diff(want, got.latencies); diff != "" {
			t.Errorf("S10.7 %s (-want +got):\n%s", source.String(), diff)
		}
	}
}

func TestWhatIsLogged(t *testing.T) {
	hook := registration.Origin{Name: "log.example.com", Configuration: "c"}
	cause := errors.New("no answer")
	tests := []struct {
		name  string
		trace Run
		lines int
	}{
		{"S7.3 an ignored failure, once", Run{Calls: []Call{{Entry: hook, Verdict: Failed, Ignored: true, Err: cause}}}, 1},
		{"a failure that rejects is returned instead", Run{Calls: []Call{{Entry: hook, Verdict: Failed, Err: cause}}}, 0},
		{"S7.10 a client that left is no news", Run{Calls: []Call{{Entry: hook, Verdict: Failed, Ignored: true, ClientGone: true, Err: cause}}}, 0},
		{"a skipped server, of which the log says so already", Run{Calls: []Call{{Entry: hook, Verdict: Failed, Ignored: true, Skipped: true, Err: cause}}}, 0},
		{"a denial", Run{Calls: []Call{{Entry: hook, Verdict: Denied, Err: cause}}}, 0},
		{"a panic, whatever became of the request", Run{Calls: []Call{{Entry: hook, Verdict: Failed, Panic: "x", Err: cause}}}, 1},
		{"S2.32 match conditions that failed and were ignored", Run{Conditions: []Condition{{Entry: hook, Excluded: true, Err: cause}}}, 1},
		{"match conditions that are false", Run{Conditions: []Condition{{Entry: hook, Excluded: true}}}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var lines []string
			logger := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
			a := admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{}, "", "", schema.GroupVersionResource{}, "",
				admission.Create, nil, false, &user.DefaultInfo{})
			new(Publisher).Publish(klog.NewContext(t.Context(), logger), a, &tt.trace)
			if len(lines) != tt.lines {
				t.Fatalf("got %d lines, want %d: %q", len(lines), tt.lines, lines)
			}
			for _, l := range lines {
				if !strings.Contains(l, "log.example.com") || !strings.Contains(l, `"error"="no answer"`) {
					t.Errorf("%s is no error that says which webhook, and why", l)
				}
			}
		})
	}
}

func TestTheLogCutsKeysOfWebhooks(t *testing.T) {
	var lines []string
	logger := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
	a := admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{}, "", "", schema.GroupVersionResource{}, "",
		admission.Create, nil, false, &user.DefaultInfo{})
	new(Publisher).Publish(klog.NewContext(t.Context(), logger), a, &Run{Source: registration.Validating, Calls: []Call{
		{Entry: registration.Origin{Name: "log.example.com"}, AuditAnnotations: map[string]string{strings.Repeat("k", 900_000): "1"}},
	}})
	if len(lines) != 1 || !strings.Contains(lines[0], `"key"="log.example.com/kkk`) || len(lines[0]) > maxLoggedKey+1000 {
		t.Errorf("S4.17: got %d lines, %.200q", len(lines), lines)
	}
}

// TestIgnoredFailuresDoNotFloodTheLog: S7.3 requires that they are logged, and a webhook that is
// down fails every request.
func TestIgnoredFailuresDoNotFloodTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		logger := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
		a := admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{}, "", "", schema.GroupVersionResource{}, "",
			admission.Create, nil, false, &user.DefaultInfo{})
		var p Publisher
		// A line with severity error in the logger's format.
		said := func(webhook, more string) string {
			return `"msg"="Webhook call failed; ignoring it because failurePolicy is Ignore" "error"="no answer" "webhook"="` + webhook +
				`" "configuration"="c" "operation"="CREATE" "resource"="/, Resource="` + more
		}
		for _, step := range []struct {
			name     string
			after    time.Duration
			times    int
			webhooks []string
			want     []string
		}{
			{"S7.3 the first failure of each webhook", 0, 5, []string{"a", "b"}, []string{said("a", ""), said("b", "")}},
			{"S7.3 nothing more soon after", logEvery / 2, 3, []string{"a"}, nil},
			{"S7.3 later, with the count of those left out", logEvery / 2, 2, []string{"a", "b"}, []string{said("a", ` "leftOut"=7`), said("b", ` "leftOut"=4`)}},
			{"S7.3 the count begins anew", logEvery, 1, []string{"a"}, []string{said("a", ` "leftOut"=1`)}},
			{"S7.3 nothing was left out", logEvery, 1, []string{"a"}, []string{said("a", "")}},
		} {
			time.Sleep(step.after)
			lines = nil
			for range step.times {
				tr := Run{Source: registration.Validating, Request: Request{Operation: "CREATE"}}
				for i, name := range step.webhooks {
					tr.Calls = append(tr.Calls, Call{
						Entry:   registration.Origin{Name: name, Configuration: "c"},
						Matched: i, Verdict: Failed, Ignored: true, Err: errors.New("no answer"), FailurePolicy: registration.Ignore,
					})
				}
				p.Publish(klog.NewContext(t.Context(), logger), a, &tr)
			}
			if diff := cmp.Diff(step.want, lines); diff != "" {
				t.Errorf("%s (-want +got):\n%s", step.name, diff)
			}
		}
	})
}
