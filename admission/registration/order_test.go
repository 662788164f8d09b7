package registration

import (
	"strings"
	"testing"
)

func TestArrange(t *testing.T) {
	in := func(name, after, before string) *Entry {
		return &Entry{Origin: Origin{Name: name}, Initializer: &Initializer{After: strings.Fields(after), Before: strings.Fields(before)}}
	}
	for _, tt := range []struct {
		name string
		list []*Entry
		want string
	}{
		{"S11.5 no wishes", []*Entry{in("b", "", ""), in("a", "", "")}, "b a"},
		{"granted already", []*Entry{in("a", "", "c"), in("b", "a", ""), in("c", "", "")}, "a b c"},
		{"after", []*Entry{in("a", "c", ""), in("b", "", ""), in("c", "", "")}, "c a b"},
		{"before", []*Entry{in("a", "", ""), in("b", "", ""), in("c", "", "a")}, "c a b"},
		{"a chain", []*Entry{in("a", "b", ""), in("b", "c", ""), in("c", "", "")}, "c b a"},
		{"unknown names", []*Entry{in("a", "x", "y"), in("b", "", "")}, "a b"},
		{"a circle", []*Entry{in("a", "b", ""), in("b", "a", ""), in("c", "", "")}, "b a c"},
		{"itself", []*Entry{in("a", "a", "a")}, "a"},
		{"a name twice", []*Entry{in("a", "", ""), in("b", "a", ""), in("a", "", "")}, "a b a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, i := range arrange(tt.list) {
				got = append(got, i.Name)
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}
