package serving

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/gatehouse-dev/gatehouse/initialization"
	"github.com/gatehouse-dev/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/harness/inside"
	"github.com/gatehouse-dev/gatehouse/test/pagetest"
)

// metric is a metric at /metrics of a server.
type metric struct{ name, kind, labels, help string }

// families are the parts of the page, by the beginnings of names. A metric belongs to the
// first part that has its name.
var families = []struct {
	title, text string
	prefixes    []string
}{
	{"Gatehouse's own", "", []string{"gatehouse_"}},
	{"Admission and conversion, with the names of kube-apiserver",
		"[Section 10 of the rules](../dev/rules/10-metrics.md) defines each count.\n\n",
		[]string{"apiserver_admission_", "apiserver_validating_admission_policy_", "apiserver_mutating_admission_policy_", "apiserver_webhooks_", "apiserver_conversion_webhook_", "apiserver_crd_conversion_"}},
	{"Requests, storage and clients, from the libraries of Kubernetes", "", []string{""}},
}

// docs/reference/metrics.md has every metric that a server registers, except metrics of the
// Go runtime and of the process.
func TestTheReferenceHasAllMetrics(t *testing.T) {
	// Controllers register metrics of their own when they start, at any time.
	s := inside.Start(t, server.Options{Controllers: []string{server.NoControllers}, BackupSchedule: "@yearly"})
	// The metrics of initializers are registered with the first event.
	initialization.Count(initialization.Event{Kind: initialization.Followed})
	initialization.Count(initialization.Event{Kind: initialization.Left})
	initialization.Count(initialization.Event{Kind: initialization.Abandoned})
	var all []metric
	// The metrics of APIServices and of scheduled backups are registered when their controllers start,
	// after the server is ready, one after the other.
	harness.Eventually(t, "the metrics of APIServices and backups are registered", func() error {
		all = registeredMetrics(t)
		for _, name := range []string{
			"aggregator_unavailable_apiservice", "aggregator_unavailable_apiservice_total",
			"gatehouse_backup_scheduled_total", "gatehouse_backup_last_success_timestamp_seconds", "gatehouse_backup_last_size_bytes",
		} {
			if !slices.ContainsFunc(all, func(m metric) bool { return m.name == name }) {
				return errors.New("not yet")
			}
		}
		return nil
	})
	var b strings.Builder
	b.WriteString("All metrics that `gatehouse serve` serves at `/metrics`, in the order of their names. A metric with labels\n" +
		"appears there when it has a first value. `go_*` and `process_*` are the metrics of every Go program.\n" +
		"[deploy/monitoring](../../deploy/monitoring) has alerts and a dashboard. A server that has called a conversion\n" +
		"webhook also has the histogram `apiserver_crd_conversion_webhook_duration_seconds`, with the labels `crd_name`,\n" +
		"`from_version`, `to_version` and `succeeded`. Controllers have the metrics of a\n" +
		"kube-controller-manager.\n")
	named := map[string]bool{}
	for _, f := range families {
		fmt.Fprintf(&b, "\n## %s\n\n%s| name | type | labels | |\n|---|---|---|---|\n", f.title, f.text)
		for _, m := range all {
			if named[m.name] || !slices.ContainsFunc(f.prefixes, func(p string) bool { return strings.HasPrefix(m.name, p) }) {
				continue
			}
			named[m.name] = true
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.name, m.kind, m.labels, pagetest.Cell(m.help))
		}
	}
	pagetest.Reference(t, filepath.Join("..", "..", "..", ".."), "./internal/commands/cli/serving", *update, "metrics.md", "Metrics", b.String())
	served := s.HTTP(t, nil).Get("/metrics").Raw
	names := regexp.MustCompile(`(?m)^# TYPE (\S+)`).FindAllStringSubmatch(string(served), -1)
	for _, m := range names {
		if !named[m[1]] && !ofEveryProgram(m[1]) {
			t.Errorf("the server serves %s, and the page does not have it", m[1])
		}
	}
	if len(names) == 0 || !named["gatehouse_admission_registrations_age_seconds"] {
		t.Error("the metrics of the server were not found")
	}
}

func ofEveryProgram(name string) bool {
	return strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_")
}

var descriptor = regexp.MustCompile(`^Desc\{fqName: ("(?:[^"\\]|\\.)*"), help: ("(?:[^"\\]|\\.)*"),.*variableLabels: \{(.*)\}\}$`)

// registeredMetrics are the metrics of this process's registry, by name.
func registeredMetrics(t *testing.T) []metric {
	t.Helper()
	var all []metric
	for _, d := range descriptors(t) {
		parts := descriptor.FindStringSubmatch(d.String())
		if parts == nil {
			t.Fatalf("descriptor of a form that is not known: %s", d)
		}
		name, _ := strconv.Unquote(parts[1])
		help, _ := strconv.Unquote(parts[2])
		if ofEveryProgram(name) {
			continue
		}
		all = append(all, metric{name, kindOf(t, name, d), strings.ReplaceAll(parts[3], ",", ", "), help})
	}
	slices.SortFunc(all, func(a, b metric) int { return strings.Compare(a.name, b.name) })
	return slices.CompactFunc(all, func(a, b metric) bool { return a.name == b.name })
}

func descriptors(t *testing.T) []*prometheus.Desc {
	registry, ok := legacyregistry.Registerer().(prometheus.Collector)
	if !ok {
		t.Fatal("the registry cannot be described")
	}
	found := make(chan *prometheus.Desc)
	go func() {
		defer close(found)
		registry.Describe(found)
	}()
	var all []*prometheus.Desc
	for d := range found {
		all = append(all, d)
	}
	return all
}

// same has the descriptor of another collector.
type same struct{ desc *prometheus.Desc }

func (s same) Describe(ch chan<- *prometheus.Desc) { ch <- s.desc }
func (s same) Collect(chan<- prometheus.Metric)    {}

var kindName = regexp.MustCompile(`(?i)(counter|gauge|histogram|summary)`)

// kindOf is the type of a metric, which may be without a value: a registry names the
// collector that is already registered for a descriptor. Types of collectors of several
// metrics cannot be seen.
func kindOf(t *testing.T, name string, d *prometheus.Desc) string {
	t.Helper()
	err := legacyregistry.Registerer().Register(same{d})
	var there prometheus.AlreadyRegisteredError
	if !errors.As(err, &there) {
		return "other"
	}
	if kind := kindName.FindString(fmt.Sprintf("%T", there.ExistingCollector)); kind != "" {
		return strings.ToLower(kind)
	}
	// A function that gives the value: it has one now.
	value := make(chan prometheus.Metric, 1)
	if _, ok := there.ExistingCollector.(prometheus.Metric); !ok {
		return "other"
	}
	there.ExistingCollector.Collect(value)
	var m dto.Metric
	if err := (<-value).Write(&m); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	switch {
	case m.Gauge != nil:
		return "gauge"
	case m.Counter != nil:
		return "counter"
	}
	return "other"
}
