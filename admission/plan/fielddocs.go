package plan

import (
	"embed"

	"github.com/gatehouse-dev/gatehouse/internal/engine/fielddocs"
)

//go:embed plan.go policies.go enforce.go
var source embed.FS

var docs = fielddocs.Of(source)

// FieldDocs returns the comments of the fields of Plan and its parts, by the name of the type and
// the JSON name of the field. The comment of a type has the empty field name. The caller must not
// change the maps.
func FieldDocs() map[string]map[string]string { return docs() }
