package v1alpha1

import (
	"embed"

	"github.com/gatehouse-dev/gatehouse/internal/engine/fielddocs"
)

//go:embed types.go
var source embed.FS

var docs = fielddocs.Of(source)

// FieldDocs returns the comments of the fields of the kinds and their parts, by the name of the
// type and the JSON name of the field. The comment of a type has the empty field name. The caller
// must not change the maps.
func FieldDocs() map[string]map[string]string { return docs() }
