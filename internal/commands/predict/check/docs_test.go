package check

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// The page documents all fields of a report.
func TestThePageHasTheFieldsOfAReport(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "check.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(data), "### Fields of a CheckReport")
	section, _, _ = strings.Cut(section, "\n## ")
	fields := 0
	var visit func(reflect.Type)
	visit = func(typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct {
			return
		}
		for i := range typ.NumField() {
			f := typ.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.Anonymous {
				visit(f.Type)
			}
			if name == "" || name == "-" || name == "apiVersion" || name == "kind" {
				continue
			}
			fields++
			if !strings.Contains(section, "`"+name+"`") && !strings.Contains(section, "."+name+"`") &&
				!strings.Contains(section, "`"+name+"[]") && !strings.Contains(section, "."+name+"[]") {
				t.Errorf("the table does not have %s.%s", typ.Name(), name)
			}
			visit(f.Type)
		}
	}
	visit(reflect.TypeFor[Report]())
	if fields < 30 {
		t.Errorf("only %d fields were seen", fields)
	}
}
