package expression

import (
	"errors"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	for _, tt := range []struct{ name, expression, want string }{
		{name: "S1.23 bool", expression: "object.metadata.name == 'x'"},
		{name: "S1.23 not bool", expression: "'x'", want: "must evaluate to bool but got string"},
		{name: "S1.23 dyn", expression: "object", want: "must evaluate to bool but got dyn"},
		{name: "S1.23 syntax", expression: "1 +", want: "compilation failed: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, stored := range []bool{false, true} {
				err := Check(tt.expression, stored)
				got := ""
				if err != nil {
					got = err.Error()
				}
				var compile *CompileError
				if tt.want == "" && err != nil || !strings.HasPrefix(got, tt.want) || err != nil && !errors.As(err, &compile) {
					t.Errorf("stored=%v: got %v, want %q", stored, err, tt.want)
				}
			}
		})
	}
}
