package initialization

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// A create that waited for initializers, after its request's handlers have returned, gets a normal response.
func TestAnswersOfCreatesThatWaited(t *testing.T) {
	t.Parallel()
	s := newSite(t, harness.Sole(t, "--initializer-timeout", "10m", "--admission-consistency", "strict"))
	// waited sends a POST that waits for initializers, and returns the response.
	waited := func(s *site, name, query, obj string, headers ...string) *harness.Response {
		s.t.Helper()
		done := make(chan *harness.Response, 1)
		go func() { done <- s.Do("POST", s.path("configmaps")+query, obj, headers...) }()
		s.await("configmaps", name, "a")
		s.act("configmaps", name, `{"data":{"by":"a"}}`)
		return s.answer(done)
	}
	for _, test := range []struct {
		name string
		run  func(*site)
	}{
		{"S11.24 the headers are those of a create that does not wait", func(s *site) {
			unknown := func(name string) string {
				return `{"metadata":{"name":"` + name + `"},"nonsense":1}`
			}
			const query = "?fieldValidation=Warn"
			now := s.Must(http.StatusAccepted, "POST", s.path("configmaps")+query+"&includeUninitialized", unknown("now"))
			later := waited(s, "later", query, unknown("later"), "Audit-Id", "mine")
			if later.Code != http.StatusCreated || later.Text("data", "by") != "a" {
				s.t.Errorf("%d %s", later.Code, later.Raw)
			}
			for _, name := range []string{"Warning", "Cache-Control", "Content-Type"} {
				if a, b := now.Header.Values(name), later.Header.Values(name); len(a) == 0 || !slices.Equal(a, b) {
					s.t.Errorf("%s: %q, and after waiting %q", name, a, b)
				}
			}
			if got := later.Header.Values("Audit-Id"); !slices.Equal(got, []string{"mine"}) {
				s.t.Errorf("Audit-Id: %q", got)
			}
			if now.Header.Get("Gatehouse-Registration-Revision") == "" || later.Header.Get("Gatehouse-Registration-Revision") == "" {
				s.t.Errorf("no revision in %v or %v", now.Header, later.Header)
			}
		}},
		{"S11.25 (a) in the format that was asked for", func(s *site) {
			r := waited(s, "yaml", "", body("configmaps", "yaml"), "Accept", "application/yaml")
			if r.Code != http.StatusCreated || r.Text("data", "by") != "a" || !strings.HasPrefix(r.Header.Get("Content-Type"), "application/yaml") {
				s.t.Errorf("%d %s", r.Code, r.Raw)
			}
			r = waited(s, "table", "", body("configmaps", "table"), "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
			if r.Code != http.StatusCreated || r.Text("kind") != "Table" || r.Text("rows", "0", "object", "metadata", "name") != "table" {
				s.t.Errorf("%d %s", r.Code, r.Raw)
			}
			client := harness.Client(s.t, harness.Protobuf(s.Admin)).CoreV1().ConfigMaps(s.ns)
			done := make(chan string, 1)
			go func() {
				c, err := client.Create(harness.Context(s.t), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "protobuf"}}, metav1.CreateOptions{})
				if err != nil {
					done <- err.Error()
					return
				}
				done <- c.Data["by"]
			}()
			s.await("configmaps", "protobuf", "a")
			s.act("configmaps", "protobuf", `{"data":{"by":"a"}}`)
			if got := <-done; got != "a" {
				s.t.Errorf("protobuf: %s", got)
			}
		}},
		{"S11.64 a controller that counts takes what is stored for created", func(s *site) {
			controller := s.as("system:serviceaccount:kube-system:replicaset-controller", "configmaps")
			for _, accept := range []string{"application/json", "application/yaml", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"} {
				name := "late-" + strings.ToLower(strings.NewReplacer("/", "-", ";", "-", "=", "-").Replace(accept))
				r := controller.Must(http.StatusAccepted, "POST", s.path("configmaps")+"?timeout=1s", body("configmaps", name), "Accept", accept)
				// PartialObjectMetadata does not include the field.
				if got := waits(r.Body); got != "a" && !strings.Contains(accept, "Partial") || r.Text("metadata", "name") != name {
					s.t.Errorf("%s: %s", accept, r.Raw)
				}
				s.await("configmaps", name, "a")
			}
			done := s.create(controller, "configmaps", body("configmaps", "rejected"))
			s.await("configmaps", "rejected", "a")
			s.Must(http.StatusOK, "PATCH", s.path("configmaps")+"/rejected", `{"metadata":{"initializers":{"result":{"status":"Failure","code":504,"reason":"Timeout","message":"no"}}}}`, "Content-Type", mergePatch)
			s.answer(done).Refusal(http.StatusGatewayTimeout, metav1.StatusReasonTimeout)
		}},
		{"S11.25 it is counted once, with its code", func(s *site) {
			count := func(code int) string {
				for line := range strings.Lines(string(s.Get("/metrics").Raw)) {
					if strings.HasPrefix(line, "apiserver_request_total{") && strings.Contains(line, fmt.Sprintf(`code="%d"`, code)) &&
						strings.Contains(line, `dry_run="",group="",resource="configmaps"`) && strings.Contains(line, `verb="POST"`) {
						return line[strings.LastIndex(line, " ")+1:]
					}
				}
				return "0\n"
			}
			for code, send := range map[int]func(){
				http.StatusCreated: func() { waited(s, "counted", "", body("configmaps", "counted")) },
				http.StatusGatewayTimeout: func() {
					s.Must(http.StatusGatewayTimeout, "POST", s.path("configmaps")+"?timeout=1s", body("configmaps", "late"))
				},
			} {
				before := count(code)
				send()
				var b, a int
				if _, err := fmt.Sscan(before, &b); err != nil {
					s.t.Fatal(err)
				}
				harness.Eventually(s.t, fmt.Sprint("one more ", code), func() error {
					if _, err := fmt.Sscan(count(code), &a); err != nil || a != b+1 {
						return fmt.Errorf("%d, then %d, %v", b, a, err)
					}
					return nil
				})
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := s.with(t)
			s.register("one", "configmaps", "a", "a.example.com")
			test.run(s)
		})
	}
}

// The audit log contains the response to a waiting create, once, and no event for the return of its request's
// handlers.
func TestAuditOfCreatesThatWaited(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	const rules = `{"apiVersion":"audit.k8s.io/v1","kind":"Policy","rules":[{"level":"RequestResponse","verbs":["create"],"resources":[{"resources":["configmaps"]}]}]}`
	if err := os.WriteFile(policy, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newSite(t, harness.Start(t, "--initializer-timeout", "10m", "--admission-consistency", "strict", "--audit-policy-file", policy, "--audit-log-path", log))
	s.register("one", "configmaps", "a", "a.example.com")
	for _, test := range []struct {
		name, change string
		code         int
		want         string
	}{
		{"done", `{"data":{"by":"a"}}`, http.StatusCreated, `{"code":201} a`},
		{"refused", `{"metadata":{"initializers":{"result":{"status":"Failure","code":409,"reason":"TooMany","message":"no more"}}}}`, http.StatusConflict,
			`{"code":409,"message":"initializer \"a.example.com\" rejected the object: no more","reason":"TooMany","status":"Failure"} <nil>`},
	} {
		done := s.create(s.HTTP, "configmaps", body("configmaps", test.name))
		s.await("configmaps", test.name, "a")
		if test.code == http.StatusCreated {
			s.act("configmaps", test.name, test.change)
		} else {
			s.Must(http.StatusOK, "PATCH", s.path("configmaps")+"/"+test.name, test.change, "Content-Type", mergePatch)
		}
		if r := s.answer(done); r.Code != test.code {
			t.Fatalf("%d %s", r.Code, r.Raw)
		}
		var found []string
		harness.Eventually(t, "the audit log has the answer", func() error {
			data, err := os.ReadFile(log)
			if err != nil {
				return err
			}
			found = nil
			for line := range strings.Lines(string(data)) {
				var event map[string]any
				if err := yaml.Unmarshal([]byte(line), &event); err != nil {
					return err
				}
				if event["stage"] != "ResponseComplete" || harness.At(event, "requestObject", "metadata", "name") != test.name {
					continue
				}
				status, _ := harness.At(event, "responseStatus").(map[string]any)
				delete(status, "metadata")
				found = append(found, fmt.Sprint(text(status), " ", harness.At(event, "responseObject", "data", "by")))
			}
			if len(found) == 0 {
				return fmt.Errorf("not among %d bytes", len(data))
			}
			return nil
		})
		if len(found) != 1 || found[0] != test.want {
			t.Errorf("%s: %q, want %q", test.name, found, test.want)
		}
	}
}

// The address of a service is released when its initialization fails.
func TestFailedServicesGiveBackTheirAddresses(t *testing.T) {
	t.Parallel()
	s := newSite(t, harness.Sole(t, "--initializer-timeout", "10m", "--admission-consistency", "strict"))
	s.register("one", "services", "a", "a.example.com")
	service := func(name, address string) string {
		return `{"metadata":{"name":"` + name + `"},"spec":{"clusterIP":"` + address + `","ports":[{"port":80}]}}`
	}
	address := s.Must(http.StatusAccepted, "POST", s.path("services")+including, service("first", "")).Text("spec", "clusterIP")
	s.Refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "POST", s.path("services")+including, service("second", address))
	s.Must(http.StatusOK, "PATCH", s.path("services")+"/first", `{"metadata":{"initializers":{"result":{"status":"Failure"}}}}`, "Content-Type", mergePatch)
	s.Must(http.StatusAccepted, "POST", s.path("services")+including, service("second", address))
}

// A waiting create gets a response when its kind is deleted with the object, and does not prevent the
// deletion of the kind.
func TestCreatorsOfKindsThatGo(t *testing.T) {
	t.Parallel()
	s := newSite(t, harness.Sole(t, "--initializer-timeout", "10m", "--admission-consistency", "strict"))
	const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	s.Must(http.StatusCreated, "POST", definitions, `{"metadata":{"name":"things.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
		"names":{"plural":"things","kind":"Thing"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`)
	things := "/apis/example.com/v1/namespaces/" + s.ns + "/things"
	harness.Eventually(t, "things are served", func() error {
		if r := s.Do("GET", things, ""); r.Code != http.StatusOK {
			return fmt.Errorf("%d", r.Code)
		}
		return nil
	})
	s.Must(http.StatusCreated, "POST", s.path("configurations"), configuration("one", "things", "a.example.com"))
	done := make(chan *harness.Response, 1)
	go func() {
		done <- s.Do("POST", things, `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"o"}}`)
	}()
	harness.Eventually(t, "the object is stored", func() error {
		if r := s.Do("GET", things+"/o"+including, ""); r.Code != http.StatusOK || waits(r.Body) != "a" {
			return fmt.Errorf("%d %s", r.Code, r.Raw)
		}
		return nil
	})
	s.Must(http.StatusOK, "DELETE", definitions+"/things.example.com", "")
	if status := s.answer(done).Refusal(http.StatusInternalServerError, metav1.StatusReasonInternalError); !strings.Contains(status.Message, "object deleted while waiting for creation") {
		t.Errorf("S11.25 (c): %s", status.Message)
	}
	harness.Eventually(t, "the kind is gone", func() error {
		if r := s.Do("GET", definitions+"/things.example.com", ""); r.Code != http.StatusNotFound {
			return fmt.Errorf("%d", r.Code)
		}
		return nil
	})
}
