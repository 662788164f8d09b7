package trace

import (
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/engine/fieldtest"
)

// The descriptions that OpenAPI has of a Record are the comments of its types.
func TestFieldsAreDescribedAsTheirCommentsSay(t *testing.T) {
	fieldtest.Check(t, *update, 10, "json.go", "json_policy.go", "enforcement.go")
}
