package credentials

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kind is a kind of object that has credentials in known fields.
type kind struct {
	schema.GroupKind
	// resource and subresource of requests with such an object.
	resource    schema.GroupResource
	subresource string
	// fields are the paths of fields whose texts are credentials; of a map, all its values.
	fields [][]string
	// whole is set if the object exists only for its credentials: texts about it may quote them.
	whole bool
}

const (
	authentication = "authentication.k8s.io"
	authorization  = "authorization.k8s.io"
)

func resource(group, name string) schema.GroupResource {
	return schema.GroupResource{Group: group, Resource: name}
}

var kinds = []kind{
	{schema.GroupKind{Kind: "Secret"}, resource("", "secrets"), "", [][]string{{"data"}, {"stringData"}}, true},
	{schema.GroupKind{Group: authentication, Kind: "TokenReview"}, resource(authentication, "tokenreviews"), "", [][]string{{"spec", "token"}, {"status", "user", extra}}, true},
	{schema.GroupKind{Group: authentication, Kind: "TokenRequest"}, resource("", "serviceaccounts"), "token", [][]string{{"status", "token"}}, true},
	{schema.GroupKind{Group: authentication, Kind: "SelfSubjectReview"}, resource(authentication, "selfsubjectreviews"), "", [][]string{{"status", "userInfo", extra}}, false},
	{schema.GroupKind{Group: authorization, Kind: "SubjectAccessReview"}, resource(authorization, "subjectaccessreviews"), "", [][]string{{"spec", extra}}, false},
	{schema.GroupKind{Group: authorization, Kind: "LocalSubjectAccessReview"}, resource(authorization, "localsubjectaccessreviews"), "", [][]string{{"spec", extra}}, false},
	{schema.GroupKind{Group: "certificates.k8s.io", Kind: "CertificateSigningRequest"}, resource("certificates.k8s.io", "certificatesigningrequests"), "", [][]string{{"spec", extra}}, false},
}

// Whole reports whether the objects of a resource, or of its subresource, exist only for their credentials: a
// text derived from such an object may quote them, and must not be shown.
func Whole(r schema.GroupResource, subresource string) bool {
	return slices.ContainsFunc(kinds, func(k kind) bool { return k.whole && k.resource == r && k.hasObject(subresource) })
}

// hasObject reports whether requests for a subresource have an object of the kind: a subresource listed separately
// has another kind.
func (k *kind) hasObject(subresource string) bool {
	return k.subresource == "" || k.subresource == subresource
}

// extra is the field with the extra data of a user that authenticators add, such as the claims of a token.
const extra = "extra"

// Extra reports whether a value in the extra data of a user may be a credential. The values that Kubernetes
// itself adds are not: the pod and the node of a service account, and the ID of a token.
func Extra(key string) bool { return !strings.HasPrefix(key, "authentication.kubernetes.io/") }

// Blanks are the replacements of credentials in objects.
type Blanks struct {
	// Data and StringData replace the values of secrets, and Text other credentials.
	Data, StringData, Text string
}

var (
	// Stored are blanks that the API accepts: every type of secret may contain an empty object.
	Stored = Blanks{Data: "e30=", StringData: "{}", Text: "redacted"}
	// Shown are blanks for people.
	Shown = Blanks{Removed, Removed, Removed}
)

// LastApplied is the annotation in which kubectl repeats all fields of an object.
const LastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// Object redacts the credentials in an object of a resource, and returns their paths. If it redacts anything, it
// also removes fields that repeat others (Unrepeat).
func (b Blanks) Object(r schema.GroupResource, subresource string, object map[string]any) []string {
	t := taker{Blanks: b}
	t.object(r, subresource, object)
	if len(t.taken) > 0 {
		t.taken = append(t.taken, Unrepeat(object)...)
	}
	slices.Sort(t.taken)
	return slices.Compact(t.taken)
}

type taker struct {
	Blanks
	taken []string
	// quotable are the credentials that were redacted as a whole and that texts may quote.
	quotable []string
}

func (t *taker) object(r schema.GroupResource, subresource string, object map[string]any) {
	for i := range kinds {
		if k := &kinds[i]; k.resource == r && k.subresource == subresource {
			t.fields(k, object, "")
		}
	}
	t.walk(object, "", "")
}

// leastQuoted is the minimum length of a credential that is searched in texts: shorter ones are parts of words.
const leastQuoted = 6

// took records a redacted credential.
func (t *taker) took(v any) {
	switch v := v.(type) {
	case string:
		if len(v) >= leastQuoted {
			t.quotable = append(t.quotable, v)
		}
	case []any:
		for _, e := range v {
			t.took(e)
		}
	}
}

// Unrepeat removes the fields of an object that repeat other fields: the managed fields, whose keys may have
// values, and kubectl's last applied configuration. It returns the removals that users notice.
func Unrepeat(object map[string]any) (taken []string) {
	meta, _ := object["metadata"].(map[string]any)
	delete(meta, "managedFields")
	if annotations, ok := meta["annotations"].(map[string]any); ok && annotations[LastApplied] != nil {
		delete(annotations, LastApplied)
		taken = append(taken, "the annotation "+LastApplied)
	}
	return taken
}

// fields redacts the fields of a kind.
func (t *taker) fields(k *kind, object map[string]any, at string) {
	for _, path := range k.fields {
		of := object
		for _, name := range path[:len(path)-1] {
			of, _ = of[name].(map[string]any)
		}
		name := path[len(path)-1]
		field := join(at, strings.Join(path, "."))
		switch v := of[name].(type) {
		case string:
			if v != "" {
				t.took(v)
				of[name] = t.Text
				t.taken = append(t.taken, field)
			}
		case map[string]any:
			t.values(v, name, field)
		}
	}
}

// values redacts the values of a field.
func (t *taker) values(v map[string]any, name, field string) {
	for key, value := range v {
		if name == extra && !Extra(key) {
			continue
		}
		t.took(value)
		switch name {
		case "data":
			text, _ := value.(string)
			if plain, err := base64.StdEncoding.DecodeString(text); err == nil {
				t.took(string(plain))
			}
			v[key] = t.Data
		case "stringData":
			v[key] = t.StringData
		default:
			v[key] = []any{t.Text}
		}
		t.taken = append(t.taken, "the values of "+field)
	}
}

// walk redacts credentials in a value with a given path and name, and returns the result.
func (t *taker) walk(v any, at, name string) any {
	switch v := v.(type) {
	case string:
		left := t.text(v, name)
		if left != v {
			t.taken = append(t.taken, at)
			if left == t.Text {
				t.took(v)
			}
		}
		return left
	case map[string]any:
		if apiVersion, ok := v["apiVersion"].(string); ok {
			gv, _ := schema.ParseGroupVersion(apiVersion)
			for i := range kinds {
				if k := &kinds[i]; k.Kind == v["kind"] && k.Group == gv.Group {
					t.fields(k, v, at)
				}
			}
		}
		if extras, ok := v[extra].(map[string]any); ok && (v["username"] != nil || v["user"] != nil) {
			// A user in a review or an audit event.
			t.values(extras, extra, join(at, extra))
		}
		for key, member := range v {
			called := key
			if of, ok := v["name"].(string); ok && key == "value" {
				// An environment variable.
				called = of
			}
			v[key] = t.walk(member, join(at, key), called)
		}
	case []any:
		flag := ""
		for i := range v {
			v[i] = t.walk(v[i], at, flag)
			// The value of a flag is an argument of its own.
			text, _ := v[i].(string)
			if flag = ""; strings.HasPrefix(text, "-") && !strings.Contains(text, "=") {
				flag = text
			}
		}
	}
	return v
}

// maxPath bounds the path before its last name, in bytes: each name may be as long as the whole object.
const maxPath = 1 << 10

// join returns the path of a member. If the path of the parent is too long, it returns that path unchanged.
func join(at, name string) string {
	if len(at) > maxPath {
		return at
	}
	return strings.TrimPrefix(at+"."+name, ".")
}

// text redacts a text in an object.
func (t *taker) text(s, name string) string {
	switch {
	case s == "":
		return s
	case Named(name):
		if s == t.Data || s == t.StringData {
			return s
		}
		return t.Text
	case len(s) >= leastEncoded && len(s)%4 == 0:
		if data, err := base64.StdEncoding.DecodeString(s); err == nil {
			if text := string(data); Text(text) != text {
				return t.Text
			}
		}
	}
	if s[0] == '{' {
		// An object within a text, such as kubectl's last applied configuration.
		if left, ok := t.Blanks.inText(s); ok {
			return left
		}
	}
	return Text(s)
}

// inText redacts the credentials of a text that is a JSON object. It returns false for any other text.
func (b Blanks) inText(text string) (string, bool) {
	v, ok := decoded([]byte(text))
	if !ok {
		return "", false
	}
	t := taker{Blanks: b}
	v = t.walk(v, ".", "")
	if len(t.taken) == 0 {
		return text, true
	}
	data, err := json.Marshal(v)
	return string(data), err == nil
}

// leastEncoded is the minimum length of a base64 text that is decoded.
const leastEncoded = 24

// variable matches the value of a named list element in the path of a patch.
var variable = regexp.MustCompile(`\[name=([^\]]+)\]\.value$`)

// nameIn returns the last name of a path, or of an expression that selects a member.
func nameIn(path string) string {
	if m := variable.FindStringSubmatch(path); m != nil {
		return m[1]
	}
	path = strings.TrimRight(path, `'"]`)
	return path[strings.LastIndexAny(path, `./['"`)+1:]
}

// Evaluated redacts the credentials in the value of an expression. The value is JSON whose end may be cut off.
func Evaluated(expression, value string) string {
	if left, ok := Shown.Value(expression, json.RawMessage(value)); ok {
		return string(left)
	}
	if strings.HasPrefix(value, `"`) && Named(nameIn(expression)) {
		return Removed
	}
	return Text(value)
}

// Patch redacts the credentials in the values of a JSON patch.
func Patch(patch json.RawMessage) json.RawMessage {
	v, _ := decoded(patch)
	list, _ := v.([]any)
	took := false
	for _, operation := range list {
		o, ok := operation.(map[string]any)
		if !ok {
			continue
		}
		path, _ := o["path"].(string)
		t := taker{Blanks: Shown}
		if value := o["value"]; value != nil {
			o["value"] = t.walk(value, ".", nameIn(path))
		}
		took = took || len(t.taken) > 0
	}
	if !took {
		return patch
	}
	left, err := json.Marshal(list)
	if err != nil {
		return nil
	}
	return left
}

// Quoting returns a function that redacts from a text every credential of the given JSON objects of a resource,
// and anything that looks like a credential.
func Quoting(r schema.GroupResource, subresource string, objects ...[]byte) func(string) string {
	t := taker{Blanks: Shown}
	for _, data := range objects {
		v, _ := decoded(data)
		if object, ok := v.(map[string]any); ok {
			t.object(r, subresource, object)
		}
	}
	// A credential may be a part of another one.
	slices.SortFunc(t.quotable, func(a, b string) int { return len(b) - len(a) })
	return func(text string) string {
		for _, credential := range t.quotable {
			text = strings.ReplaceAll(text, credential, Removed)
		}
		return Text(text)
	}
}

// Value redacts the credentials in a JSON value. The last name of its path counts. It returns false if it
// redacted nothing.
func (b Blanks) Value(path string, data json.RawMessage) (json.RawMessage, bool) {
	v, ok := decoded(data)
	if !ok {
		return data, false
	}
	t := taker{Blanks: b}
	v = t.walk(v, ".", nameIn(path))
	if len(t.taken) == 0 {
		return data, false
	}
	left, err := json.Marshal(v)
	if err != nil {
		return nil, true
	}
	return left, true
}

// decoded decodes a JSON value, and keeps its numbers unchanged.
func decoded(data []byte) (v any, ok bool) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return nil, false
	}
	_, err := d.Token()
	return v, err == io.EOF
}
