package plan

import (
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/engine/fieldtest"
)

// The descriptions that OpenAPI has of a Plan are the comments of its types.
func TestFieldsAreDescribedAsTheirCommentsSay(t *testing.T) {
	fieldtest.Check(t, *update, 12, "plan.go", "policies.go", "enforce.go")
}
