package rejection

import (
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
)

// Violation is one fault of an object that the server rejects.
type Violation struct {
	// Field is the path of the field, as the server names it; empty for the object itself. Place is the position of the
	// fault, which Message names if Field is empty.
	Field, Place string
	Message      string
	// Unread reports whether the fault is an unknown or duplicate field, which hides other faults.
	Unread bool
}

// StrictDecoding begins the server's message about unknown and duplicate fields.
const StrictDecoding = offline.StrictDecoding

var unknownField = regexp.MustCompile(`(unknown|duplicate) field "((?:[^"\\]|\\.)*)"`)

// goField matches a decoder's name of a field whose value has the wrong type.
var goField = regexp.MustCompile(`Go struct field [A-Za-z]+\.([\w.]+) of type`)

// Faults splits the rejection of an object into faults. There is at least one.
func Faults(s *metav1.Status, object map[string]any) (list []Violation) {
	if strings.Contains(s.Message, StrictDecoding) {
		for _, m := range unknownField.FindAllStringSubmatch(s.Message, -1) {
			list = append(list, Violation{Field: m[2], Place: m[2], Message: m[1] + " field", Unread: true})
		}
		if len(list) > 0 {
			return list
		}
	}
	named := false
	if s.Details != nil {
		for _, c := range s.Details.Causes {
			named = named || c.Field != ""
			field := c.Field
			if strings.HasPrefix(field, "<") {
				// The field <nil> means the object itself.
				field = ""
			}
			list = append(list, Violation{Field: field, Place: field, Message: c.Message})
		}
	}
	if named {
		return list
	}
	f := Violation{Message: s.Message}
	if s.Reason == metav1.StatusReasonBadRequest {
		f.Field = Undecodable(object)
		f.Place = f.Field
	}
	if f.Place != "" {
		return []Violation{f}
	}
	if m := goField.FindStringSubmatch(s.Message); m != nil {
		f.Place = m[1]
	}
	return []Violation{f}
}
