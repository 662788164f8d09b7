package expression

import (
	"math"
	"strings"
	"sync"

	"github.com/google/cel-go/checker"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
)

// Types are the types and bounds in a schema for the objects of an expression. They are safe for
// concurrent use, and must not change.
type Types struct {
	// Object is the type of object and oldObject.
	Object *apiservercel.DeclType
	// Bound returns the maximum number of elements, or of characters, of the value at a path of
	// object; ok is false if the schema has no limit. A path has the names of fields, "@items" for
	// the elements of a list, and "@keys" and "@values" for the keys and values of a map.
	Bound func(path []string) (most uint64, ok bool)

	// mu guards made. It is held while an environment is created, so that each is created once.
	mu   sync.Mutex
	made map[Scope]*environment.EnvSet
}

// environment returns the environment of a scope. Creating the environment of a kind with many
// fields takes milliseconds, and policies that arrive together often have the same kinds.
func (t *Types) environment(s Scope) (*environment.EnvSet, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known := t.made[s]; known != nil {
		return known, nil
	}
	set, err := newEnvironment(s, t.Object)
	if err != nil {
		return nil, err
	}
	if t.made == nil {
		t.made = map[Scope]*environment.EnvSet{}
	}
	t.made[s] = set
	return set, nil
}

// unbounded is more than any schema allows: if a size is not bounded, the cost is a fraction of the
// maximum uint64.
const unbounded = math.MaxUint64 >> 16

// Estimate returns the worst-case cost of an expression, in CEL cost units. ok is false if the
// schema does not bound it, if the expression does not fit the schema, or if it uses variables,
// params or other values whose sizes no schema bounds.
func Estimate(text string, scope Scope, types *Types) (cost uint64, ok bool) {
	if types.Object == nil || !types.Object.IsObject() {
		return 0, false
	}
	set, err := types.environment(scope)
	if err != nil {
		return 0, false
	}
	env := set.StoredExpressionsEnv()
	checked, issues := env.Compile(text)
	if issues.Err() != nil || uses(checked, "variables") {
		return 0, false
	}
	found, err := env.EstimateCost(checked, &library.CostEstimator{SizeEstimator: bounds{of: types.Bound}})
	if err != nil || found.Max > unbounded {
		return 0, false
	}
	return found.Max, true
}

// bounds estimates sizes from a schema.
type bounds struct {
	noCalls
	of func(path []string) (uint64, bool)
}

// EstimateSize implements checker.CostEstimator.
func (b bounds) EstimateSize(element checker.AstNode) *checker.SizeEstimate {
	path := element.Path()
	if len(path) < 2 || path[0] != "object" && path[0] != "oldObject" {
		return nil
	}
	names := make([]string, len(path)-1)
	for i, name := range path[1:] {
		if names[i] = name; !strings.HasPrefix(name, "@") {
			if unescaped, ok := apiservercel.Unescape(name); ok {
				names[i] = unescaped
			}
		}
	}
	most, ok := b.of(names)
	if !ok {
		return nil
	}
	return &checker.SizeEstimate{Max: most}
}

// noCalls is the part of an estimator that does not estimate calls.
type noCalls struct{}

// EstimateCallCost implements checker.CostEstimator.
func (noCalls) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}
