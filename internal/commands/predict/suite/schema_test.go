package suite

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The schema for editors has the fields that the command reads (S24.9).
func TestTheSchemaHasTheFieldsThatAreRead(t *testing.T) {
	data, err := os.ReadFile("../../../../docs/test.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	type properties map[string]any
	var schema struct {
		Properties properties
		Defs       map[string]struct{ Properties properties } `json:"$defs"`
	}
	if err := json.Unmarshal(data, &schema); err != nil {
		t.Fatal(err)
	}
	const wrong = "zzzzzzzzzzzzzzzz"
	const begin = "apiVersion: gatehouse.dev/v1alpha1\nkind: AdmissionTests\n"
	for name, tc := range map[string]struct {
		text string
		has  properties
	}{
		"the document": {begin + wrong + ": 1\ntests: []\n", schema.Properties},
		"a test":       {begin + "tests: [{" + wrong + ": 1}]\n", schema.Defs["test"].Properties},
		"request":      {begin + "tests: [{name: a, request: {" + wrong + ": 1}, expect: {allowed: true}}]\n", schema.Defs["request"].Properties},
		"expect":       {begin + "tests: [{name: a, request: {of: Pod a, operation: DELETE}, expect: {" + wrong + ": 1}}]\n", schema.Defs["expect"].Properties},
		"a row":        {begin + "tests: [{name: a, request: {of: Pod a, operation: DELETE}, rows: [{" + wrong + ": 1}]}]\n", schema.Defs["row"].Properties},
		"an answer":    {begin + "webhooks: [{" + wrong + ": 1}]\ntests: []\n", schema.Defs["answer"].Properties},
		"a program":    {begin + "programs: [{" + wrong + ": 1}]\ntests: []\n", schema.Defs["program"].Properties},
	} {
		file := filepath.Join(t.TempDir(), "tests.yaml")
		if err := os.WriteFile(file, []byte(tc.text), 0o644); err != nil {
			t.Fatal(err)
		}
		set, err := Find([]string{file}, Reading{})
		if err != nil {
			t.Fatal(err)
		}
		var read []string
		for _, e := range set.Errors {
			if about, list, ok := strings.Cut(e.Message, " has no field \""+wrong+"\": it may have "); ok && about == name {
				read = strings.Split(list, ", ")
			}
		}
		if diff := cmp.Diff(slices.Sorted(maps.Keys(tc.has)), read); diff != "" || len(read) == 0 {
			t.Errorf("%s (-schema +read):\n%s", name, diff)
		}
	}
}
