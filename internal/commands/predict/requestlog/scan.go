package requestlog

import (
	"encoding/json"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

var (
	// exact reads objects. If a member name occurs twice, the last one wins, as in the API server.
	exact = jsonv2.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	// Lenient also matches member names case-insensitively.
	Lenient = jsonv2.JoinOptions(exact, jsonv2.MatchCaseInsensitiveNames(true))
)

// Decode reads an object, and reports whether data is an object.
func Decode(data []byte, into any, how jsonv2.Options) bool {
	return jsontext.Value(data).Kind() == '{' && jsonv2.Unmarshal(data, into, how) == nil
}

// rawOf returns the JSON of an object of an event; nil if the event does not contain it.
func rawOf(u *runtime.Unknown) json.RawMessage {
	if u == nil {
		return nil
	}
	return u.Raw
}

// headerOf reads apiVersion and kind, which determine the format of a line.
func headerOf(data []byte) (of metav1.TypeMeta, ok bool) {
	ok = Decode(data, &of, exact)
	return of, ok
}

// Meta is the part of an object that a reader of requests needs.
type Meta struct {
	metav1.TypeMeta
	Metadata `json:"metadata"`
}

// Metadata is a part of the metadata of an object. CreationTimestamp is nil if absent.
type Metadata struct {
	Name              string `json:"name"`
	Namespace         string `json:"namespace"`
	GenerateName      string `json:"generateName"`
	UID               string `json:"uid"`
	ResourceVersion   string `json:"resourceVersion"`
	CreationTimestamp any    `json:"creationTimestamp"`
}

// MetaOf reads the metadata of an object. It returns false if the object, or one of these fields, is not readable.
func MetaOf(object []byte) (m Meta, ok bool) {
	ok = Decode(object, &m, exact)
	return m, ok
}

// Text returns the string at a path of an object, or "".
func Text(object []byte, path ...string) (text string) {
	var members map[string]json.RawMessage
	if !Decode(object, &members, exact) {
		return ""
	}
	value := members[path[0]]
	if len(path) > 1 {
		return Text(value, path[1:]...)
	}
	if json.Unmarshal(value, &text) != nil {
		return ""
	}
	return text
}
