package monitoring_test

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/metrics/legacyregistry"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/initialization"
	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// expression is a query as written in a file.
type expression struct {
	where, expr string
	// labels are the labels in the text next to the query.
	labels []string
}

var (
	legendLabel = regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}`)
	alertLabel  = regexp.MustCompile(`\$labels\.(\w+)`)
)

func labelsIn(pattern *regexp.Regexp, texts ...string) []string {
	var labels []string
	for _, found := range pattern.FindAllStringSubmatch(strings.Join(texts, "\n"), -1) {
		labels = append(labels, found[1])
	}
	return labels
}

// dashboards reads the queries of the dashboard, including its variables.
func dashboards(t *testing.T) []expression {
	t.Helper()
	var content struct {
		UID, Title string
		Panels     []struct {
			Title, Type, Description string
			Datasource               struct{ UID string }
			Targets                  []struct{ Expr, LegendFormat string }
		}
		Templating struct {
			List []struct{ Name, Type, Definition string }
		}
	}
	data, err := os.ReadFile("dashboard.json")
	if err == nil {
		err = json.Unmarshal(data, &content)
	}
	if err != nil {
		t.Fatal(err)
	}
	if content.UID == "" || content.Title == "" {
		t.Error("dashboard.json has no uid or no title")
	}
	var list []expression
	variables := []string{"$__rate_interval"}
	variable := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)
	for _, v := range content.Templating.List {
		variables = append(variables, "$"+v.Name)
		if v.Type != "query" {
			continue
		}
		parts := variable.FindStringSubmatch(v.Definition)
		if parts == nil {
			t.Errorf("variable %s: %s asks for no label's values", v.Name, v.Definition)
			continue
		}
		list = append(list, expression{where: "variable " + v.Name, expr: parts[1], labels: parts[2:]})
	}
	for _, p := range content.Panels {
		if p.Type == "row" {
			continue
		}
		if p.Description == "" || len(p.Targets) == 0 || p.Datasource.UID != "${datasource}" {
			t.Errorf("panel %q lacks a description, a query or the data source", p.Title)
		}
		for _, target := range p.Targets {
			for _, used := range regexp.MustCompile(`\$\w+`).FindAllString(target.Expr, -1) {
				if !slices.Contains(variables, used) {
					t.Errorf("panel %q uses the variable %s, which does not exist", p.Title, used)
				}
			}
			list = append(list, expression{where: "panel " + p.Title, expr: target.Expr, labels: labelsIn(legendLabel, target.LegendFormat)})
		}
	}
	return list
}

// alerts reads the queries of every file of rules.
func alerts(t *testing.T) []expression {
	t.Helper()
	files, err := filepath.Glob("*.rules.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files of rules: %v", err)
	}
	var list []expression
	for _, file := range files {
		var content struct {
			Groups []struct {
				Name, Interval string
				Rules          []struct {
					Alert, Expr, For    string
					Labels, Annotations map[string]string
				}
			}
		}
		data, err := os.ReadFile(file)
		if err == nil {
			err = yaml.UnmarshalStrict(data, &content)
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, g := range content.Groups {
			for _, r := range g.Rules {
				texts := []string{r.Annotations["summary"], r.Annotations["description"]}
				if r.Alert == "" || r.Labels["severity"] == "" || slices.Contains(texts, "") {
					t.Errorf("%s, group %s: alert %q lacks a name, a severity, a summary or a description", file, g.Name, r.Alert)
				}
				list = append(list, expression{where: file + ", alert " + r.Alert, expr: r.Expr, labels: labelsIn(alertLabel, texts...)})
			}
		}
	}
	return list
}

// README.md lists the alerts, and no others.
func TestTheAlertsAreListed(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed, want []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(Gatehouse\\w+)` \\|").FindAllStringSubmatch(string(page), -1) {
		listed = append(listed, row[1])
	}
	for _, a := range alerts(t) {
		_, name, _ := strings.Cut(a.where, ", alert ")
		want = append(want, name)
	}
	slices.Sort(listed)
	slices.Sort(want)
	if !slices.Equal(listed, want) {
		t.Errorf("README.md lists %q, and the alerts are %q", listed, want)
	}
}

// TestQueriesAskForWhatThereIs proves that every metric, label and value in the
// dashboard and in the alerts is served by a server under traffic (S10).
func TestQueriesAskForWhatThereIs(t *testing.T) {
	s := harness.Start(t, "--initializer-timeout", "2s", "--backup-schedule", "@yearly")
	h := s.HTTP(t, nil)
	drive(t, h)
	queries := slices.DeleteFunc(append(dashboards(t), alerts(t)...), ofAgent)
	// Events outside of requests, such as timeouts, are measured a little later.
	harness.Eventually(t, "all is measured", func() error {
		own := httptest.NewRecorder()
		legacyregistry.Handler().ServeHTTP(own, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		metrics := read(string(h.Get("/metrics").Raw) + own.Body.String())
		var missing []error
		for _, e := range queries {
			for _, problem := range metrics.missing(e.expr, e.labels...) {
				missing = append(missing, fmt.Errorf("%s: %s: there is no %s", e.where, e.expr, problem))
			}
		}
		return errors.Join(missing...)
	})
}

const (
	configMaps = "/api/v1/namespaces/default/configmaps"
	secrets    = "/api/v1/namespaces/default/secrets"
	registered = "/apis/admissionregistration.k8s.io/"
)

// drive causes every event that a server measures.
func drive(t *testing.T, h *harness.HTTP) {
	t.Helper()
	hook := httptest.NewTLSServer(http.HandlerFunc(answer))
	t.Cleanup(hook.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw})
	webhook := func(name, url, policy, condition string) string {
		return fmt.Sprintf(`{"name":"%s.monitoring.example.com","clientConfig":{"url":%q,"caBundle":%s},
			"rules":[{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"]}],
			"matchConditions":[{"name":"wanted","expression":%q}],
			"failurePolicy":%q,"sideEffects":"None","admissionReviewVersions":["v1"]}`,
			name, url, must(json.Marshal(ca)), condition, policy)
	}
	register := func(version, resource, kind, field string, entries ...string) {
		h.Must(http.StatusCreated, "POST", registered+version+"/"+resource, fmt.Sprintf(
			`{"apiVersion":"admissionregistration.k8s.io/%s","kind":%q,"metadata":{"name":"monitoring"},%q:[%s]}`,
			version, kind, field, strings.Join(entries, ",")))
	}
	register("v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", "webhooks",
		webhook("allows", hook.URL+"/allow", "Fail", `object.metadata.name != "spared"`))
	register("v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", "webhooks",
		webhook("denies", hook.URL+"/deny", "Fail", `object.metadata.name == "denied"`),
		webhook("fails", hook.URL+"/fail", "Fail", `object.metadata.name == "failing"`),
		webhook("opens", hook.URL+"/fail", "Ignore", `object.metadata.name == "open"`),
		webhook("away", "https://"+harness.Refused(t), "Ignore", `object.metadata.name == "away"`),
		webhook("puzzles", hook.URL+"/allow", "Ignore", `object.data.missing == "x"`))
	register("v1alpha1", "initializerconfigurations", "InitializerConfiguration", "initializers",
		`{"name":"waits.monitoring.example.com","rules":[{"apiGroups":[""],"apiVersions":["v1"],"resources":["secrets"]}]}`)
	named := func(name string) string { return fmt.Sprintf(`{"metadata":{"name":%q}}`, name) }
	harness.Eventually(t, "the registrations are in force", func() error {
		webhooks := h.Do("POST", configMaps+"?dryRun=All", named("denied"))
		initializers := h.Do("POST", secrets+"?dryRun=All", named("trial"))
		if webhooks.Code != http.StatusForbidden || initializers.Code != http.StatusAccepted {
			return fmt.Errorf("codes %d and %d", webhooks.Code, initializers.Code)
		}
		return nil
	})
	for name, code := range map[string]int{
		"fine": http.StatusCreated, "spared": http.StatusCreated, "open": http.StatusCreated,
		"denied": http.StatusForbidden, "failing": http.StatusInternalServerError,
	} {
		h.Must(code, "POST", configMaps, named(name))
	}
	harness.Eventually(t, "a webhook server is not called any more", func() error {
		h.Must(http.StatusCreated, "POST", configMaps+"?dryRun=All", named("away"))
		if n := h.Metrics().Value("gatehouse_admission_webhook_circuit_open"); n != 1 {
			return fmt.Errorf("%v", n)
		}
		return nil
	})

	// One initializer acts, one rejects, and one makes its creator wait until the timeout.
	patch := func(name, initializers string) {
		h.Must(http.StatusAccepted, "POST", secrets+"?includeUninitialized=true", named(name))
		h.Must(http.StatusOK, "PATCH", secrets+"/"+name, `{"metadata":{"initializers":`+initializers+`}}`, "Content-Type", "application/merge-patch+json")
	}
	patch("acted", "null")
	patch("refused", `{"result":{"status":"Failure","message":"no"}}`)
	h.Must(http.StatusCreated, "POST", secrets, named("late"))

	// The test itself counts the events that take minutes or need a broken etcd, in its own process.
	initialization.Count(initialization.Event{
		Kind: initialization.Repaired, Resource: schema.GroupResource{Resource: "secrets"}, Initializer: "waits.monitoring.example.com",
	})
	initialization.Count(initialization.Event{
		Kind: initialization.Abandoned, Resource: schema.GroupResource{Resource: "secrets"}, Initializer: "waits.monitoring.example.com",
	})
	initialization.Count(initialization.Event{
		Kind: initialization.TimedOutFailed, Resource: schema.GroupResource{Resource: "secrets"}, Initializer: "waits.monitoring.example.com",
	})
	admission.CountRead(snapshot.Read{Begin: time.Now(), Err: errors.New("etcd does not answer")})
}

// answer is a webhook whose path selects its response.
func answer(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || r.URL.Path == "/fail" {
		http.Error(w, "out of order", http.StatusInternalServerError)
		return
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: r.URL.Path == "/allow"}
	if !review.Response.Allowed {
		review.Response.Result = &metav1.Status{Code: http.StatusForbidden, Message: "not this one"}
	}
	_ = json.NewEncoder(w).Encode(review)
}

func must(data []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return data
}
