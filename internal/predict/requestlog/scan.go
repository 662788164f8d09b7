package requestlog

import (
	"encoding/json"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

var (
	// exact reads objects: of two members of a name it takes the last, as the API server does.
	exact = jsonv2.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	// Lenient also takes names of members in other case.
	Lenient = jsonv2.JoinOptions(exact, jsonv2.MatchCaseInsensitiveNames(true))
)

// Decode reads an object, and reports whether the data are one.
func Decode(data []byte, into any, how jsonv2.Options) bool {
	return jsontext.Value(data).Kind() == '{' && jsonv2.Unmarshal(data, into, how) == nil
}

// rawOf is an object of an event; nil if the event does not show it.
func rawOf(u *runtime.Unknown) json.RawMessage {
	if u == nil {
		return nil
	}
	return u.Raw
}

// headerOf reads the fields that say which format a line has.
func headerOf(data []byte) (of metav1.TypeMeta, ok bool) {
	ok = Decode(data, &of, exact)
	return of, ok
}

// Meta is what has to be known of an object.
type Meta struct {
	metav1.TypeMeta
	Metadata `json:"metadata"`
}

// Metadata is a part of the metadata of an object. CreationTimestamp is nil if there is none.
type Metadata struct {
	Name              string `json:"name"`
	Namespace         string `json:"namespace"`
	GenerateName      string `json:"generateName"`
	UID               string `json:"uid"`
	ResourceVersion   string `json:"resourceVersion"`
	CreationTimestamp any    `json:"creationTimestamp"`
}

// MetaOf reads an object. It returns false if the object, or one of these fields, is not readable.
func MetaOf(object []byte) (m Meta, ok bool) {
	ok = Decode(object, &m, exact)
	return m, ok
}

// Text returns a text in an object, empty if there is none.
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
