package requestlog

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// auditEvent makes an event of an audit log.
func auditEvent(verb, level, resource, name, more string) string {
	return fmt.Sprintf(`{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":%q,"auditID":"a","stage":"ResponseComplete","requestURI":"/x","verb":%q,"user":{"username":"jane","groups":["g"]},"objectRef":{"resource":%q,"namespace":"shop","name":%q,"apiVersion":"v1"},"requestReceivedTimestamp":"2026-03-01T12:00:00.000000Z"%s}`, level, verb, resource, name, more)
}

func stored(version, data string) string {
	return fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"shop","uid":"u","resourceVersion":%q},"data":{"k":%q}}`, version, data)
}

func write(t testing.TB, text []byte) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// readAll reads a text and returns the resulting requests and counts as lines.
func readAll(t testing.TB, text []byte, known func(Key) json.RawMessage) []string {
	t.Helper()
	path := write(t, text)
	var got []string
	count, err := (&Reader{Paths: []string{path}, Known: known}).Read(t.Context(), func(q *Entry) error {
		line := q.Title()
		var object, old struct{ Data map[string]string }
		_ = json.Unmarshal(q.Object, &object)
		_ = json.Unmarshal(q.OldObject, &old)
		if object.Data != nil {
			line += " sends " + object.Data["k"]
		}
		if old.Data != nil {
			line += " for " + old.Data["k"]
		}
		if q.Apply != nil {
			line += fmt.Sprintf(" applies as %s %v", q.Apply.FieldManager, q.Apply.Force)
		}
		if q.Patch != nil {
			line += " patches " + string(q.Patch)
		}
		if q.Stored != nil {
			line += " of " + kindOf(q.Stored) + " " + revisionOf(q.Stored)
		}
		if c := strings.Count(string(q.Object), `"image"`); c > 0 {
			line += fmt.Sprintf(" with %d containers", c)
		}
		if q.DryRun {
			line += " dry run"
		}
		if q.Response != nil {
			line += fmt.Sprintf(" -> %v %d", q.Response.Allowed, q.Response.Code)
		}
		if len(q.Or) > 0 {
			line += fmt.Sprintf(" or %d more", len(q.Or))
		}
		got = append(got, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if count.Requests != len(got) {
		t.Errorf("%d requests are counted, %d were given", count.Requests, len(got))
	}
	for _, r := range count.LeftOut {
		got = append(got, fmt.Sprintf("left out %d: %s", r.Count, r.Reason))
	}
	for _, r := range count.Other {
		got = append(got, fmt.Sprintf("other %d: %s", r.Count, r.Reason))
	}
	if count.Backwards > 0 {
		got = append(got, fmt.Sprintf("backwards %d", count.Backwards))
	}
	for _, p := range count.Problems {
		got = append(got, "problem: "+strings.TrimPrefix(p, path))
	}
	return got
}

// S25.4, S25.8: the contents and the missing parts of each source.
func TestRead(t *testing.T) {
	const all, request = "RequestResponse", "Request"
	created := `,"responseStatus":{"code":201},"requestObject":` + stored("", "1") + `,"responseObject":` + stored("10", "1")
	updated := func(from, to, data string) string {
		return `,"responseStatus":{"code":200},"requestObject":` + stored(from, data) + `,"responseObject":` + stored(to, data)
	}
	review := func(version, request string) string {
		return fmt.Sprintf(`{"apiVersion":%q,"kind":"AdmissionReview","request":%s}`, version, request)
	}
	const reviewed = `{"uid":"u","kind":{"group":"","version":"v1","kind":"ConfigMap"},"resource":{"group":"","version":"v1","resource":"configmaps"},"namespace":"shop","name":"a","operation":"UPDATE","userInfo":{"username":"joe"},"dryRun":true,"object":{"data":{"k":"2"}},"oldObject":{"data":{"k":"1"}}}`
	for _, c := range []struct {
		name string
		in   []string
		want []string
	}{
		{"a log of level RequestResponse has the object before", []string{
			auditEvent("create", all, "configmaps", "a", created),
			auditEvent("update", all, "configmaps", "a", updated("10", "11", "2")),
			auditEvent("patch", all, "configmaps", "a", `,"responseStatus":{"code":200},"requestObject":{"data":{"k":"3"}},"responseObject":`+stored("12", "3")),
			auditEvent("delete", all, "configmaps", "a", `,"responseStatus":{"code":200}`),
		}, []string{
			"CREATE configmaps shop/a by jane sends 1 -> true 201",
			"UPDATE configmaps shop/a by jane sends 2 for 1 -> true 200",
			"UPDATE configmaps shop/a by jane sends 3 for 2 -> true 200",
			"DELETE configmaps shop/a by jane for 3 -> true 200",
		}},
		{"an update of another version is not judged", []string{
			auditEvent("create", all, "configmaps", "a", created), auditEvent("update", all, "configmaps", "a", updated("20", "21", "2")),
		}, []string{
			"CREATE configmaps shop/a by jane sends 1 -> true 201",
			"left out 1: the log does not have the version of the object that the request changes",
		}},
		{"level Request and Metadata", []string{
			auditEvent("create", request, "configmaps", "a", `,"responseStatus":{"code":201},"requestObject":`+stored("", "1")),
			auditEvent("update", request, "configmaps", "a", `,"responseStatus":{"code":200},"requestObject":`+stored("", "2")),
			auditEvent("create", "Metadata", "configmaps", "a", ""),
			auditEvent("delete", "Metadata", "configmaps", "a", ""),
		}, []string{
			"CREATE configmaps shop/a by jane sends 1 -> true 201",
			"left out 2: the object before the request is not known",
			"left out 1: an event of level Metadata has no objects",
		}},
		{"a patch of several kinds is several requests, an apply is one", []string{
			auditEvent("create", all, "pods", "a", `,"responseStatus":{"code":201},"requestObject":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}},"responseObject":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i"}]}}`),
			auditEvent("patch", all, "pods", "a", `,"responseStatus":{"code":422},"requestObject":{"spec":{"containers":[{"name":"d","image":"j"}]}}`),
			auditEvent("patch", all, "pods", "a", `,"responseStatus":{"code":422},"requestObject":[{"op":"remove","path":"/no"}]`),
			strings.Replace(auditEvent("patch", all, "pods", "a", `,"requestObject":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}`), `"/x"`, `"/x?fieldManager=me&force=true"`, 1),
		}, []string{
			"CREATE pods shop/a by jane -> true 201",
			"UPDATE pods shop/a by jane with 1 containers -> false 422 or 1 more",
			"UPDATE pods shop/a by jane applies as me true",
			"left out 1: the patch cannot be applied to the object before the request",
		}},
		{"who is impersonated makes the request", []string{
			auditEvent("create", all, "configmaps", "a", `,"impersonatedUser":{"username":"ci"}`+created),
		}, []string{"CREATE configmaps shop/a by ci sends 1 -> true 201"}},
		{"what is no write, and what admission did not see", []string{
			auditEvent("list", all, "configmaps", "", ""),
			strings.Replace(auditEvent("create", all, "configmaps", "a", ""), "ResponseComplete", "RequestReceived", 1),
			auditEvent("create", all, "configmaps", "a", `,"annotations":{"authorization.k8s.io/decision":"forbid"},"responseStatus":{"code":403}`),
			auditEvent("create", all, "configmaps", "a", `,"responseStatus":{"code":409},"requestObject":{}`),
			auditEvent("deletecollection", all, "configmaps", "", `,"responseStatus":{"code":200}`),
			`{"kind":"Event","apiVersion":"audit.k8s.io/v1beta1"}`,
		}, []string{
			"left out 1: audit events of version \"audit.k8s.io/v1beta1\" are not read; audit.k8s.io/v1 is",
			"left out 1: authorization rejected the request",
			"left out 1: the answer was 409, which is not of admission",
			"left out 1: the deletion of a collection does not name its objects",
			"other 1: a read",
			"other 1: an event of another stage than ResponseComplete",
		}},
		{"connections need no object", []string{
			strings.Replace(auditEvent("create", "Metadata", "pods", "a", `,"responseStatus":{"code":101}`), `"name":"a"`, `"name":"a","subresource":"exec"`, 1),
		}, []string{"CONNECT pods/exec shop/a by jane -> true 101"}},
		{"reviews of both versions", []string{
			review("admission.k8s.io/v1", reviewed), review("admission.k8s.io/v1beta1", reviewed), review("admission.k8s.io/v2", reviewed), review("admission.k8s.io/v1", "null"),
		}, []string{
			"UPDATE configmaps shop/a by joe sends 2 for 1 dry run", "UPDATE configmaps shop/a by joe sends 2 for 1 dry run",
			"left out 1: a review without a request",
			"left out 1: reviews of version \"admission.k8s.io/v2\" are not read; admission.k8s.io/v1 and v1beta1 are",
		}},
		{"traces have no objects", []string{
			`{"apiVersion":"gatehouse.dev/v1alpha1","kind":"AdmissionTrace","id":"1","outcome":"Denied","request":{"operation":"CREATE","resource":{"version":"v1","resource":"pods"}},"steps":[]}`,
			`{"id":"1","outcome":"Denied","request":{"operation":"CONNECT","resource":{"version":"v1","resource":"pods"},"subresource":"exec","namespace":"shop","name":"a","user":"jane"},"steps":[]}`,
		}, []string{"CONNECT pods/exec shop/a by jane -> false 0", "left out 1: a trace has no objects"}},
		{"the own format", []string{
			`{"apiVersion":"gatehouse.dev/v1alpha1","kind":"RecordedRequest","operation":"CREATE","resource":{"version":"v1","resource":"configmaps"},"user":{"username":"a"},"object":{"data":{"k":"1"}}}`,
			`{"apiVersion":"gatehouse.dev/v1alpha1","kind":"RecordedRequest","operation":"CREATE","resource":{"version":"v1","resource":"configmaps"},"user":{"username":"a"}}`,
			`{"apiVersion":"gatehouse.dev/v9","kind":"RecordedRequest"}`,
		}, []string{
			"CREATE configmaps (no name) by a sends 1",
			"left out 1: recorded requests of version \"gatehouse.dev/v9\" are not read; gatehouse.dev/v1alpha1 is", "left out 1: the request has no object",
		}},
		{"a list of events, with other lines and a line that is cut", []string{
			`{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":[` + strings.Replace(auditEvent("create", all, "configmaps", "a", created), `"kind":"Event","apiVersion":"audit.k8s.io/v1",`, "", 1) + `]}`,
			`{"kind":"Pod","apiVersion":"v1"}`, `{}`, "", "nonsense", `{"kind":"Event","apiVersion":"audit.k8s.`,
		}, []string{
			"CREATE configmaps shop/a by jane sends 1 -> true 201",
			"left out 2: not readable as JSON", "left out 1: a line without a kind", "left out 1: the kind \"Pod\" is no recorded request",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := strings.Join(c.in, "\n")
			if diff := cmp.Diff(c.want, readAll(t, []byte(text), nil)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// S25.4: a log shows the objects stored before requests, and the kind of a patch.
func TestAuditLogsShowObjects(t *testing.T) {
	const all = "RequestResponse"
	on := func(subresource, event string) string {
		return strings.Replace(event, `"objectRef":{`, `"objectRef":{"subresource":"`+subresource+`",`, 1)
	}
	answered := func(request, response string) string {
		return `,"responseStatus":{"code":200},"requestObject":` + request + `,"responseObject":` + response
	}
	patch := auditEvent("patch", all, "configmaps", "a", answered(`{"data":{"k":"9"}}`, stored("13", "9")))
	const patched = "UPDATE configmaps shop/a by jane sends 9 for 1 -> true 200"
	pod := func(version, more string) string {
		return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"shop","uid":"u","resourceVersion":"` + version + `"},"spec":{"nodeName":"n","containers":[` + more + `{"name":"c","image":"i"}]}}`
	}
	deployment := func(version, replicas string) string {
		return `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a","namespace":"shop","uid":"u","resourceVersion":"` + version + `"},"spec":{"replicas":` + replicas + `}}`
	}
	scale := func(version string) string {
		return `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"a","namespace":"shop","resourceVersion":"` + version + `"},"spec":{"replicas":3}}`
	}
	read := func(verb, object string) string {
		return auditEvent(verb, all, "configmaps", "", `,"responseStatus":{"code":200},"responseObject":`+object)
	}
	item := strings.Replace(stored("10", "1"), `"kind":"ConfigMap","apiVersion":"v1",`, "", 1)
	created := func(object string) string { return answered(object, object) }
	for _, c := range []struct {
		name string
		in   []string
		want []string
	}{
		{"the answer to a get", []string{read("get", stored("10", "1")), patch}, []string{patched, "other 1: a read"}},
		{"the answer to a list", []string{read("list", `{"kind":"ConfigMapList","apiVersion":"v1","items":[`+item+`]}`), patch}, []string{patched, "other 1: a read"}},
		{"a read that is older than the last write, or not of the object", []string{
			auditEvent("create", all, "configmaps", "a", created(stored("10", "1"))), read("get", stored("9", "0")), read("get", `{"kind":"Status","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"99"}}`), patch,
		}, []string{"CREATE configmaps shop/a by jane sends 1 -> true 200", patched, "other 2: a read"}},
		{"the deletion of a collection makes nothing else unknown", []string{
			read("get", stored("10", "1")), strings.Replace(auditEvent("deletecollection", all, "pods", "", `,"responseStatus":{"code":200}`), `"name":""`, `"name":""`, 1), patch,
			auditEvent("deletecollection", all, "configmaps", "", `,"responseStatus":{"code":200}`), patch,
		}, []string{patched, "left out 2: the deletion of a collection does not name its objects", "left out 1: the object before the request is not known", "other 1: a read"}},
		{"an object that is being deleted is still there", []string{
			auditEvent("create", all, "pods", "a", created(pod("10", ""))), auditEvent("delete", all, "pods", "a", answered(`{}`, pod("11", ""))), auditEvent("delete", "Metadata", "pods", "a", ""),
		}, []string{"CREATE pods shop/a by jane with 1 containers -> true 200", "DELETE pods shop/a by jane -> true 200", "DELETE pods shop/a by jane"}},
		{"the answer shows the kind of a patch", []string{
			auditEvent("create", all, "pods", "a", created(pod("10", ""))),
			auditEvent("patch", all, "pods", "a", answered(`{"spec":{"containers":[{"name":"d","image":"j"}]}}`, pod("11", `{"name":"d","image":"j","imagePullPolicy":"Always"},`))),
			auditEvent("patch", all, "pods", "a", answered(`{"spec":{"containers":[{"name":"c","image":"i"}]}}`, pod("12", ""))),
		}, []string{"CREATE pods shop/a by jane with 1 containers -> true 200", "UPDATE pods shop/a by jane with 2 containers -> true 200", "UPDATE pods shop/a by jane with 1 containers -> true 200"}},
		{"a patch with a kind and a manager may be an apply", []string{
			auditEvent("create", all, "configmaps", "a", created(stored("10", "1"))),
			strings.Replace(auditEvent("patch", all, "configmaps", "a", answered(`{"apiVersion":"v1","kind":"ConfigMap","data":{"k":"9"}}`, stored("13", "9"))), `"/x"`, `"/x?fieldManager=me"`, 1),
		}, []string{"CREATE configmaps shop/a by jane sends 1 -> true 200", patched + " or 1 more"}},
		{"subresources", []string{
			auditEvent("create", all, "pods", "a", created(pod("10", ""))),
			on("ephemeralcontainers", auditEvent("patch", all, "pods", "a", answered(`{"spec":{"ephemeralContainers":[{"name":"d","image":"j"}]}}`, pod("11", "")))),
			auditEvent("delete", all, "pods", "a", ""),
			on("scale", auditEvent("patch", all, "deployments", "b", answered(`{"spec":{"replicas":3}}`, scale("12")))),
			auditEvent("create", all, "deployments", "a", created(deployment("10", "1"))),
			on("scale", auditEvent("patch", all, "deployments", "a", answered(`{"spec":{"replicas":3}}`, scale("12")))),
			on("scale", auditEvent("update", all, "deployments", "a", answered(scale("12"), scale("13")))),
			auditEvent("update", all, "deployments", "a", answered(deployment("13", "4"), deployment("14", "4"))),
		}, []string{
			"CREATE pods shop/a by jane with 1 containers -> true 200", "UPDATE pods/ephemeralcontainers shop/a by jane with 2 containers -> true 200", "DELETE pods shop/a by jane",
			"CREATE deployments shop/a by jane -> true 200", `UPDATE deployments/scale shop/a by jane patches {"spec":{"replicas":3}} of Deployment 10 -> true 200`,
			"UPDATE deployments/scale shop/a by jane of Deployment 12 -> true 200", "UPDATE deployments shop/a by jane -> true 200",
			"left out 1: the object before the request is not known",
		}},
		{"a namespace is in no namespace", []string{
			strings.Replace(auditEvent("create", all, "namespaces", "a", created(`{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"3"}}`)), `"namespace":"shop"`, `"namespace":""`, 1),
			strings.Replace(auditEvent("delete", all, "namespaces", "a", `,"responseStatus":{"code":200}`), `"namespace":"shop"`, `"namespace":"a"`, 1),
		}, []string{"CREATE namespaces a by jane -> true 200", "DELETE namespaces a by jane -> true 200"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, readAll(t, []byte(strings.Join(c.in, "\n")), nil)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// S25.8: a bad line hides no other line, wherever it is.
func TestABadLineHidesNothing(t *testing.T) {
	good := auditEvent("create", "RequestResponse", "configmaps", "a", `,"requestObject":`+stored("", "1"))
	for _, bad := range []string{"nonsense", "# a comment", "---", "a: b", "- a", "{", "}", "[", "]", `"text"`, "null", "1", "\x00\x00", "\xff\xfe", "\ufeff", good + good, good + ",", good[:len(good)/2], good[len(good)/2:], "Mar  1 12:00:00 node apiserver: " + good, "'", "|", "&a *a", "%YAML 1.2", "kind: Event", "apiVersion: audit.k8s.io/v1", strings.Repeat("{", 20_000), strings.Repeat("[", 20_000)} {
		for at := range 3 {
			list := []string{good, good}
			text := strings.Join(slices.Insert(list, at, bad), "\n")
			found := 0
			if _, err := (&Reader{Paths: []string{write(t, []byte(text))}}).Read(t.Context(), func(*Entry) error { found++; return nil }); err != nil || found != 2 {
				t.Errorf("%.40q as line %d: %d requests, %v", bad, at+1, found, err)
			}
		}
	}
}

// half returns the first half of a compressed file with one long line.
func half(begin string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = io.WriteString(z, begin)
	random := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		fmt.Fprintf(z, "%x", random.Uint32())
	}
	z.Close()
	return b.Bytes()[:b.Len()/2]
}

// S25.8: files that are one document, compressed, truncated, or contain a line that is far too long.
func TestFiles(t *testing.T) {
	review := `{
  "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
  "request": {"operation": "CONNECT", "resource": {"version": "v1", "resource": "pods"}, "subResource": "exec", "name": "a", "userInfo": {"username": "jane"}}
}`
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	line := strings.Join(strings.Fields(review), "") + "\n"
	_, _ = z.Write([]byte(strings.Repeat(line, 3)))
	z.Close()
	long := append(append([]byte(line), bytes.Repeat([]byte("x"), MaxLine+100)...), []byte("\n"+line)...)
	const one = "CONNECT pods/exec a by jane"
	for _, c := range []struct {
		name string
		in   []byte
		want []string
	}{
		{"one document", []byte(review), []string{one}},
		{"in YAML", []byte("apiVersion: admission.k8s.io/v1\nkind: AdmissionReview\nrequest: {operation: CONNECT, resource: {version: v1, resource: pods}, subResource: exec, name: a, userInfo: {username: jane}}\n"), []string{one}},
		{"compressed", zipped.Bytes(), []string{one, one, one}},
		{"compressed and cut", zipped.Bytes()[:zipped.Len()-9], []string{one, one, one, "problem: :4: the file ends here: unexpected EOF"}},
		{"compressed and cut in the first line", half(`{"kind":"`), []string{"left out 1: not readable as JSON", "problem: :1: the file ends here: unexpected EOF"}},
		{"a line that is too long", long, []string{one, one, "left out 1: a line of more than 16 MiB"}},
		{"a first line that is cut", []byte("{\"kind\n" + line), []string{one, "left out 1: not readable as JSON"}},
		{"empty", nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, readAll(t, c.in, nil)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// S25.4, S25.8: each kind of bad input is counted with its reason, and the requests around it are read.
func TestBadInput(t *testing.T) {
	const all = "RequestResponse"
	create := auditEvent("create", all, "configmaps", "a", `,"responseStatus":{"code":201},"requestObject":`+stored("", "1")+`,"responseObject":`+stored("10", "1"))
	const created = "CREATE configmaps shop/a by jane sends 1 -> true 201"
	at := func(clock, event string) string { return strings.Replace(event, "T12:00:00", "T"+clock, 1) }
	update := auditEvent("update", all, "configmaps", "a", `,"responseStatus":{"code":200},"requestObject":`+stored("10", "2")+`,"responseObject":`+stored("11", "2"))
	review := func(version string) string {
		return `{"kind":"AdmissionReview","apiVersion":"` + version + `","request":{"uid":"1","resource":{"version":"v1","resource":"pods"},"name":"a","operation":"CONNECT","subResource":"exec","userInfo":{"username":"joe"}}}`
	}
	for _, c := range []struct {
		name string
		in   []string
		want []string
	}{
		{"a log that is cut in the middle of an event", []string{create, create[:len(create)/2]}, []string{created, "left out 1: not readable as JSON"}},
		{"a log whose beginning is gone", []string{create[len(create)/2:], create}, []string{created, "left out 1: not readable as JSON"}},
		{"versions and formats in one file", []string{
			create, strings.Replace(create, "audit.k8s.io/v1", "audit.k8s.io/v1beta1", 1), review("admission.k8s.io/v1"), review("admission.k8s.io/v1beta1"), review("admission.k8s.io/v3"),
			`{"apiVersion":"gatehouse.dev/v1alpha1","kind":"RecordedRequest","operation":"CREATE","resource":{"version":"v1","resource":"configmaps"},"user":{"username":"a"},"object":{"data":{"k":"1"}}}`,
			`{"id":"1","outcome":"Allowed","request":{"operation":"CONNECT","resource":{"version":"v1","resource":"pods"},"subresource":"exec","namespace":"shop","name":"a","user":"jane"},"steps":[]}`,
		}, []string{
			created, "CONNECT pods/exec a by joe", "CONNECT pods/exec a by joe", "CREATE configmaps (no name) by a sends 1", "CONNECT pods/exec shop/a by jane -> true 0",
			`left out 1: audit events of version "audit.k8s.io/v1beta1" are not read; audit.k8s.io/v1 is`,
			`left out 1: reviews of version "admission.k8s.io/v3" are not read; admission.k8s.io/v1 and v1beta1 are`,
		}},
		{"events without objects", []string{
			auditEvent("create", "Metadata", "configmaps", "a", ""), auditEvent("create", all, "configmaps", "a", `,"requestObject":null`),
			auditEvent("update", all, "configmaps", "a", ""), auditEvent("patch", all, "configmaps", "a", ""), auditEvent("delete", all, "configmaps", "a", ""),
		}, []string{
			"left out 2: the request has no object", "left out 1: an event of level Metadata has no objects", "left out 1: the event has no objects",
			"left out 1: the object before the request is not known",
		}},
		{"the clock goes backwards between objects", []string{at("12:00:05", create), at("12:00:04", strings.ReplaceAll(create, `"a"`, `"b"`))}, []string{
			created, strings.Replace(created, "shop/a", "shop/b", 1), "backwards 1",
		}},
		{"the clock goes backwards for an object", []string{at("12:00:05", create), at("12:00:04", update), at("12:00:06", auditEvent("delete", all, "configmaps", "a", `,"responseStatus":{"code":200}`))}, []string{
			created, "DELETE configmaps shop/a by jane for 2 -> true 200", "left out 1: the events of an object are not in the order of time",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, readAll(t, []byte(strings.Join(c.in, "\n")), nil)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// endless is a reader of a line without an end.
type endless struct{}

var many = bytes.Repeat([]byte("x"), 64<<10)

func (endless) Read(p []byte) (int, error) { return copy(p, many), nil }

// S25.8: a line of a gigabyte is left out, wherever it is, and uses no memory.
func TestALineOfAGigabyte(t *testing.T) {
	review := `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"resource":{"version":"v1","resource":"pods"},"name":"a","operation":"CONNECT","subResource":"exec","userInfo":{"username":"joe"}}}`
	line := func() io.Reader { return io.LimitReader(endless{}, 1<<30) }
	text := strings.NewReader
	for _, c := range []struct {
		name             string
		in               io.Reader
		read, long, lost int
	}{
		{"in the middle", io.MultiReader(text(review+"\n"), line(), text("\n"+review+"\n")), 2, 1, 0},
		{"at the beginning", io.MultiReader(line(), text("\n"+review+"\n")), 1, 1, 0},
		{"at the end", io.MultiReader(text(review+"\n"), line()), 1, 1, 0},
		{"after a line that is cut", io.MultiReader(text("{\n"), line(), text("\n"+review+"\n")), 1, 1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			r := &Reader{count: &Count{}}
			found := 0
			if err := r.file(t.Context(), "log", c.in, func(*Entry) error { found++; return nil }); err != nil {
				t.Fatal(err)
			}
			runtime.ReadMemStats(&after)
			long, lost := 0, 0
			for _, l := range r.count.LeftOut {
				if l.Reason == notReadable {
					lost += l.Count
				} else {
					long += l.Count
				}
			}
			if found != c.read || long != c.long || lost != c.lost {
				t.Errorf("%d requests, %d lines too long, %d not readable: %+v", found, long, lost, r.count)
			}
			if made := after.TotalAlloc - before.TotalAlloc; made > 10*MaxLine {
				t.Errorf("%d MiB were allocated", made>>20)
			}
		})
	}
}

// S25.4: an object known from the baseline is used as the object before the request.
func TestWhatIsKnown(t *testing.T) {
	known := func(Key) json.RawMessage { return json.RawMessage(stored("", "0")) }
	got := readAll(t, []byte(auditEvent("delete", "Metadata", "configmaps", "a", "")), known)
	if diff := cmp.Diff([]string{"DELETE configmaps shop/a by jane for 0"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// S25.8: no input breaks the reader, and the same input gives the same requests.
func FuzzRead(f *testing.F) {
	f.Add([]byte(auditEvent("create", "RequestResponse", "configmaps", "a", `,"requestObject":`+stored("", "1")+`,"responseStatus":{"code":201},"responseObject":`+stored("1", "1")) + "\n" + auditEvent("patch", "Request", "configmaps", "a", `,"requestObject":{"data":null}`)))
	f.Add([]byte(`{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":[{},{"kind":"EventList"},1]}`))
	f.Add([]byte("apiVersion: admission.k8s.io/v1\nkind: AdmissionReview\n"))
	f.Add([]byte(`{"id":"1","request":{"operation":"DELETE"},"steps":[]}`))
	f.Add([]byte{0x1f, 0x8b, 8, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		if diff := cmp.Diff(readAll(t, data, nil), readAll(t, data, nil)); diff != "" {
			t.Error(diff)
		}
	})
}

// S30.9: events are read in the order in which their files were written, and the position of a broken line is reported.
func TestEventsOfRotatedFiles(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"audit-2026-11-28T01-00-00.000.log": "1", "audit-2026-11-28T02-00-00.000.log.gz": "2", "audit.log.10": "3", "audit.log.9.gz": "4", "audit.log.1": "5", "audit.log": "6", "audit.txt": "7",
	} {
		data := []byte(`{"apiVersion":"audit.k8s.io/v1","kind":"Event","auditID":"` + text + `"}` + "\n{\"broken\n")
		if strings.HasSuffix(name, ".gz") {
			var b bytes.Buffer
			w := gzip.NewWriter(&b)
			w.Write(data)
			w.Close()
			data = b.Bytes()
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var order []string
	count, err := Events(t.Context(), []string{dir}, nil, func(event []byte, place string) error {
		order = append(order, Text(event, "auditID"))
		return nil
	})
	if err != nil || strings.Join(order, "") != "123456" {
		t.Errorf("%v: %v", order, err)
	}
	if len(count.LeftOut) != 1 || count.LeftOut[0].Count != 6 || count.LeftOut[0].First != filepath.Join(dir, "audit-2026-11-28T01-00-00.000.log")+":2" {
		t.Errorf("left out: %+v", count.LeftOut)
	}
	order = nil
	list := `{"apiVersion":"audit.k8s.io/v1","kind":"EventList","items":[{"auditID":"a"},{"auditID":"b"}]}`
	if _, err := Events(t.Context(), []string{Stdin}, strings.NewReader(list), func(event []byte, place string) error {
		order = append(order, Text(event, "auditID")+" "+place)
		return nil
	}); err != nil || strings.Join(order, ", ") != "a standard input:1, b standard input:1" {
		t.Errorf("%v: %v", order, err)
	}
}
