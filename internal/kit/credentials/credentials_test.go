package credentials

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	token = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlIn0.c2lnbmF0dXJl"
	key   = "-----BEGIN EC PRIVATE KEY-----\nMHcC\n-----END EC PRIVATE KEY-----"
)

// S25.13: everything in a text that looks like a credential is redacted, and the rest stays.
func TestCredentialsInTexts(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"a private key", "a\n" + key + "\nb", "a\n[removed]\nb"},
		{"a private key that is cut off", "-----BEGIN PRIVATE KEY-----\nMHcC", "[removed]"},
		{"a certificate stays", "-----BEGIN CERTIFICATE-----\nMHcC", "-----BEGIN CERTIFICATE-----\nMHcC"},
		{"a token of a service account", "got " + token + "!", "got [removed]!"},
		{"a bearer", `Authorization: Bearer s3cr3t-token`, `Authorization: Bearer [removed]`},
		{"a bearer in a sentence", `bearer abcdefgh is not valid`, `bearer [removed] is not valid`},
		{"a header without a scheme", "Authorization: s3cr3t\nb", "Authorization: [removed]\nb"},
		{"headers as Go prints them", `map[Authorization:[Bearer abc] Accept:[x]]`, `map[Authorization:[Bearer [removed]] Accept:[x]]`},
		{"a password in a URL", "dial https://jane:pass@example.com/x", "dial https://[removed]@example.com/x"},
		{"a password in JSON", `got {"password": "hunter22", "a": 1}`, `got {"password": "[removed]", "a": 1}`},
		{"a quote in a password", `got {"password": "a\"b", "a": 1}`, `got {"password": "[removed]", "a": 1}`},
		{"JSON in JSON", `"{\"password\": \"hunter22\", \"a\": 1}"`, `"{\"password\": \"[removed]\", \"a\": 1}"`},
		{"a token in a query", "GET /x?token=abcdef&a=b", "GET /x?token=[removed]&a=b"},
		{"a short one in a logged URI", `"HTTP" verb="GET" URI="/x?token=abc" latency="1ms"`, `"HTTP" verb="GET" URI="/x?token=[removed]" latency="1ms"`},
		{"an encoded query", "to=%2Fx%3Ftoken%3Dabc&a=b", "to=%2Fx%3Ftoken%3D[removed]&a=b"},
		{"a signed URL", "GET /b?X-Amz-Signature=abc&a=b", "GET /b?X-Amz-Signature=[removed]&a=b"},
		{"a variable", "AWS_SECRET_ACCESS_KEY=abc/def+g", "AWS_SECRET_ACCESS_KEY=[removed]"},
		{"a variable of a script", "export DB_PASS='a b' # x", "export DB_PASS='[removed]' # x"},
		{"a password with spaces in a file", "  password: two words, and more\nuser: x", "  password: [removed]\nuser: x"},
		{"a variable in a line", "starting with DB_PASS=hunter2 DB_USER=jane", "starting with DB_PASS=[removed] DB_USER=jane"},
		{"a cookie", "Cookie: a=b; c=d\nx", "Cookie: [removed]\nx"},
		{"a cookie that is set", `"Set-Cookie":"a=b; Secure","b":1`, `"Set-Cookie":"[removed]","b":1`},
		{"a member in camel case", "privateKey: abc", "privateKey: [removed]"},
		{"a block of YAML", "a:\n  privateKey: |\n    MHcC\n    MHcD\n  b: c\n", "a:\n  privateKey: [removed]\n  b: c\n"},
		{"pgpass", "db.example.com:5432:orders:jane:hunter2", "db.example.com:5432:orders:jane:[removed]"},
		{"a flag", "run --db-password hunter2 --user jane", "run --db-password [removed] --user jane"},
		{"a token to join with", "kubeadm join abcdef.0123456789abcdef now", "kubeadm join [removed] now"},
		{"the name of an event stays", "web-abcdef.0123456789abcdef", "web-abcdef.0123456789abcdef"},
		{"a kubeconfig", "users:\n- name: a\n  user: {client-certificate-data: YQ==, client-key-data: Yg==}\n- user:\n    token: abc\n", "users:\n- name: a\n  user: {client-certificate-data: YQ==, client-key-data: [removed]}\n- user:\n    token: [removed]\n"},
		{"an object", `{"args":["--token","abc"],"data":{"a":"b"},"env":[{"name":"DB_PASS","value":"abc"}]}`, `{"args":["--token","[removed]"],"data":{"a":"b"},"env":[{"name":"DB_PASS","value":"[removed]"}]}`},
		{"an object that is cut off", `saw {"args":["--token","abc"],"env":[{"name":"DB_PASS","value":"abc"},{"name":"TOK`, `saw {"args":["--token","[removed]"],"env":[{"name":"DB_PASS","value":"[removed]"},{"name":"TOK`},
		{"a variable in YAML", "- name: DB_PASS\n  value: abc\n- name: A\n  value: b", "- name: DB_PASS\n  value: [removed]\n- name: A\n  value: b"},
		{"a flag that names a file stays", "token-auth-file=/etc/tokens.csv", "token-auth-file=/etc/tokens.csv"},
		{"a metric of secrets stays", `requests{resource="secrets"} 1`, `requests{resource="secrets"} 1`},
		{"whether there is one stays", "automountServiceAccountToken: false", "automountServiceAccountToken: false"},
		{"the name of a variable stays", "TOKEN=${OTHER} PASSWORD=$(THIRD)", "TOKEN=${OTHER} PASSWORD=$(THIRD)"},
		{"an expression stays", `object.token == x ? a.token : b.token`, `object.token == x ? a.token : b.token`},
		{"the working directory stays", "PWD=/home/jane", "PWD=/home/jane"},
		{"an object stays", "token:\n  secretName: a", "token:\n  secretName: a"},
		{"other words stay", "compass: north, bypass=1, secretName: a", "compass: north, bypass=1, secretName: a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Text(c.text)
			if got != c.want {
				t.Errorf("%q\nwant %q", got, c.want)
			}
			if again := Text(got); again != got {
				t.Errorf("a second time: %q", again)
			}
		})
	}
}

// S25.13: the time for a text grows linearly with its length, also for a single line. Otherwise each of these
// texts would exceed the test timeout.
func TestLongLinesOfNames(t *testing.T) {
	const size = 1 << 20
	filled := func(text string) string { return strings.Repeat(text, size/len(text)) }
	for name, text := range map[string]string{
		"values":            "x " + filled("token:a "),
		"behind quotes":     filled(`"`) + filled("token:true,"),
		"without blocks":    "x " + filled("token:|a ") + "\n",
		"no end of a quote": "x token:" + strings.Repeat(`\`, size) + `"` + filled(`\`),
	} {
		t.Run(name, func(t *testing.T) {
			if left := Text(text); strings.Contains(left, "token:a ") || !strings.Contains(left, "token:") {
				t.Errorf("%.100q ...", left)
			}
		})
	}
}

// S25.13: the memory for an object grows linearly with its length, also with long names of members.
func TestLongNamesOfMembers(t *testing.T) {
	inside := map[string]any{}
	for i := range 10_000 {
		inside[fmt.Sprintf("token%d-key", i)], inside[fmt.Sprintf("%d-password", i)] = "a", "a"
	}
	object := map[string]any{strings.Repeat("k", 1<<20): inside}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	taken := Shown.Object(schema.GroupResource{Resource: "widgets"}, "", object)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 256<<20 {
		t.Errorf("%d MiB for an object of 1 MiB", n>>20)
	}
	if len(taken) == 0 || inside["7-password"] != Removed || inside["token7-key"] != "a" {
		t.Errorf("%d taken, left %v, %v", len(taken), inside["7-password"], inside["token7-key"])
	}
}

// S25.13: credentials are fields of known kinds, members with the name of a credential, and values with the form
// of one.
func TestCredentialsInObjects(t *testing.T) {
	encoded := base64.StdEncoding.EncodeToString([]byte("users: [{user: {token: hidden}}]"))
	for _, c := range []struct{ name, resource, object, want, taken string }{
		{"a secret", "secrets.", `{"data":{"a":"hidden"},"stringData":{"token":"hidden"},"metadata":{"managedFields":[{}],"annotations":{"a":"b","` + LastApplied + `":"hidden"}}}`,
			`{"data":{"a":"e30="},"metadata":{"annotations":{"a":"b"}},"stringData":{"token":"{}"}}`,
			"the annotation " + LastApplied + ", the values of data, the values of stringData"},
		{"a review of a token", "tokenreviews.authentication.k8s.io", `{"spec":{"audiences":["a"],"token":"hidden"},"status":{"user":{"username":"u","extra":{"e":["hidden"],"authentication.kubernetes.io/node-name":["n"]}}}}`,
			`{"spec":{"audiences":["a"],"token":"redacted"},"status":{"user":{"extra":{"authentication.kubernetes.io/node-name":["n"],"e":["redacted"]},"username":"u"}}}`, "spec.token, the values of status.user.extra"},
		{"a token that was asked for", "serviceaccounts/token.", `{"spec":{"audiences":["a"]},"status":{"token":"hidden"}}`, `{"spec":{"audiences":["a"]},"status":{"token":"redacted"}}`, "status.token"},
		{"what a user may do", "subjectaccessreviews.authorization.k8s.io", `{"spec":{"extra":{"e":["hidden"]}}}`, `{"spec":{"extra":{"e":["redacted"]}}}`, "the values of spec.extra"},
		{"a user in an object", "things.example.com", `{"request":{"userInfo":{"username":"u","extra":{"e":["hidden"]}}}}`, `{"request":{"userInfo":{"extra":{"e":["redacted"]},"username":"u"}}}`, "the values of request.userInfo.extra"},
		{"secrets in other objects", "things.example.com", `{"spec":{"objects":[{"apiVersion":"v1","kind":"Secret","data":{"a":"hidden"}}]}}`, `{"spec":{"objects":[{"apiVersion":"v1","data":{"a":"e30="},"kind":"Secret"}]}}`, "the values of spec.objects.data"},
		{"a secret in a text", "things.example.com", `{"metadata":{"annotations":{"was":"{\"apiVersion\":\"v1\",\"kind\":\"Secret\",\"data\":{\"a\":\"hidden\"}}"}}}`,
			`{"metadata":{"annotations":{"was":"{\"apiVersion\":\"v1\",\"data\":{\"a\":\"e30=\"},\"kind\":\"Secret\"}"}}}`, "metadata.annotations.was"},
		{"a kubeconfig and keys", "configmaps.", `{"data":{"kubeconfig":"users:\n- user: {token: hidden}","key.pem":` + quoted(strings.ReplaceAll(key, "MHcC", "hidden")) + `,"db-password":"hidden"},"binaryData":{"k":"` + encoded + `"}}`,
			`{"binaryData":{"k":"redacted"},"data":{"db-password":"redacted","key.pem":"[removed]","kubeconfig":"users:\n- user: {token: [removed]}"}}`, "binaryData.k, data.db-password, data.key.pem, data.kubeconfig"},
		{"variables and arguments", "pods.", `{"spec":{"containers":[{"name":"c","args":["--token","hidden","--password=hidden","-v","2"],"env":[{"name":"DB_PASS","value":"hidden"},{"name":"TOKEN","valueFrom":{"secretKeyRef":{"name":"s","key":"token"}}},{"name":"A","value":"b"}]}],"automountServiceAccountToken":true}}`,
			`{"spec":{"automountServiceAccountToken":true,"containers":[{"args":["--token","redacted","--password=[removed]","-v","2"],"env":[{"name":"DB_PASS","value":"redacted"},{"name":"TOKEN","valueFrom":{"secretKeyRef":{"key":"token","name":"s"}}},{"name":"A","value":"b"}],"name":"c"}]}}`,
			"spec.containers.args, spec.containers.env.value"},
		{"nothing", "deployments.apps", `{"metadata":{"managedFields":[{}]},"spec":{"n":12345678901234567890,"image":"r:5000/a@sha256:b"}}`, `{"metadata":{"managedFields":[{}]},"spec":{"image":"r:5000/a@sha256:b","n":12345678901234567890}}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			name, group, _ := strings.Cut(c.resource, ".")
			name, subresource, _ := strings.Cut(name, "/")
			v, ok := decoded([]byte(c.object))
			if !ok {
				t.Fatal("no object")
			}
			taken := Stored.Object(schema.GroupResource{Group: group, Resource: name}, subresource, v.(map[string]any))
			got, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, string(got)); diff != "" || strings.Join(taken, ", ") != c.taken || strings.Contains(string(got), "hidden") {
				t.Errorf("taken %q (-want +got):\n%s", taken, diff)
			}
		})
	}
}

func quoted(s string) string {
	data, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// S25.13: a value is a credential if the last name of its path is the name of one.
func TestCredentialsInValues(t *testing.T) {
	for _, c := range []struct{ field, value, want string }{
		{"/data/password", `"hidden"`, `"[removed]"`},
		{"data.password", `"hidden"`, `"[removed]"`},
		{"spec.containers[name=c].env[name=DB_PASS].value", `"hidden"`, `"[removed]"`},
		{"spec.containers[name=c].env[name=A].value", `"b"`, `"b"`},
		{"/spec/containers/0", `{"env":[{"name":"TOKEN","value":"hidden"}],"n":1}`, `{"env":[{"name":"TOKEN","value":"[removed]"}],"n":1}`},
		{"/metadata/labels", `{"a": "b"}`, `{"a": "b"}`},
		{"/data", `not JSON`, `not JSON`},
	} {
		got, took := Shown.Value(c.field, json.RawMessage(c.value))
		if string(got) != c.want || took != (c.want != c.value) {
			t.Errorf("%s: %s, %v; want %s", c.field, got, took, c.want)
		}
	}
}

// S25.13: the value of an expression is a credential if the selected member has the name of one.
func TestCredentialsInValuesOfExpressions(t *testing.T) {
	for _, c := range []struct{ expression, value, want string }{
		{"object.data.password", `"hidden"`, `"[removed]"`},
		{"object.data['db-password']", `"hidden"`, `"[removed]"`},
		{"object.data.password", `"hidden and cut o`, `[removed]`},
		{"size(object.data.password)", `6`, `6`},
		{"object.data", `{"password":"hidden","a":"b"}`, `{"a":"b","password":"[removed]"}`},
		{"object.metadata.name", `"a"`, `"a"`},
	} {
		if got := Evaluated(c.expression, c.value); got != c.want {
			t.Errorf("%s = %s: %s; want %s", c.expression, c.value, got, c.want)
		}
	}
}

// S25.13: a text about an object does not quote its credentials, and a patch has none.
func TestCredentialsInWhatIsSaidOfObjects(t *testing.T) {
	quoting := Quoting(resource("", "secrets"), "", []byte(`{"data":{"a":"aHVudGVyMjI="},"stringData":{"b":"hunter22-and-more","c":"x"}}`), nil, []byte("no JSON"))
	if got, want := quoting(`a is "hunter22" or aHVudGVyMjI=, b is hunter22-and-more, x`), `a is "[removed]" or [removed], b is [removed], x`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, c := range []struct{ patch, want string }{
		{`[{"op":"add","path":"/data/password","value":"hidden"},{"op":"remove","path":"/a"}]`, `[{"op":"add","path":"/data/password","value":"[removed]"},{"op":"remove","path":"/a"}]`},
		{`[{"op": "add", "path": "/a", "value": null}]`, `[{"op": "add", "path": "/a", "value": null}]`},
		{`{}`, `{}`}, {``, ``},
	} {
		if got := string(Patch(json.RawMessage(c.patch))); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}

// S25.13: objects that exist only for their credentials.
func TestWhatIsThereForItsCredentials(t *testing.T) {
	for _, c := range []struct {
		group, resource, subresource string
		want                         bool
	}{
		{"", "secrets", "", true},
		{"example.com", "secrets", "", false},
		{"authentication.k8s.io", "tokenreviews", "", true},
		{"", "serviceaccounts", "token", true},
		{"", "serviceaccounts", "", false},
		{"authorization.k8s.io", "subjectaccessreviews", "", false},
		{"", "configmaps", "", false},
	} {
		if got := Whole(schema.GroupResource{Group: c.group, Resource: c.resource}, c.subresource); got != c.want {
			t.Errorf("%s.%s/%s: %v", c.resource, c.group, c.subresource, got)
		}
	}
}

// No text makes the functions panic or grow their input without bound.
func FuzzText(f *testing.F) {
	for _, seed := range []string{"", "password: |\n a\n b", `token="a\`, "--token ", "cookie=[", "a:1:b:c:d", `\"secret\":\"x\"`, "privateKey: >-\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if got := Text(text); len(got) > len(text)*(len(Removed)+1)+len(Removed) {
			t.Errorf("%q became %d bytes", text, len(got))
		}
	})
}

func BenchmarkObject(b *testing.B) {
	pod := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-5d4f8c7b9d-x2x4z","namespace":"shop","labels":{"app":"web","pod-template-hash":"5d4f8c7b9d"}},"spec":{"containers":[` +
		strings.TrimSuffix(strings.Repeat(`{"name":"c","image":"registry.example.com/shop/web:1.2.3","args":["--listen=:8080","--log-level=info"],"env":[{"name":"A","value":"http://db.shop.svc:5432/x"}]},`, 5), ",") + `]}}`
	b.ReportAllocs()
	for b.Loop() {
		v, ok := decoded([]byte(pod))
		if taken := Stored.Object(schema.GroupResource{Resource: "pods"}, "", v.(map[string]any)); !ok || len(taken) > 0 {
			b.Fatal(taken)
		}
	}
}
