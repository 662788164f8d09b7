package expression

import (
	"context"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	limits "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/library"
)

// constantLimit bounds the cost of an evaluation in Constant, in CEL cost units. The time of an
// evaluation can grow with the square of its cost, because of how CEL counts: at PerExpression it
// can be more than half a minute.
const constantLimit = PerExpression / 20

// Analysis analyzes an expression without a request. It compiles the expression once, and is safe
// for concurrent use.
type Analysis struct {
	e    *Expression
	once sync.Once
	// checked is nil if the expression does not compile.
	checked *cel.Ast
	env     *cel.Env
	err     error

	// program is created when Constant is first called.
	program func() (cel.Program, error)
}

// Analyze returns the analysis of an expression.
func Analyze(e *Expression) *Analysis { return &Analysis{e: e} }

func (a *Analysis) compile() {
	a.once.Do(func() {
		if a.env, a.err = a.e.environment(); a.err != nil {
			return
		}
		checked, wrong := check(a.env, a.e.text, a.e.result)
		if wrong != nil {
			a.err = wrong
			return
		}
		a.checked = checked
		a.program = sync.OnceValues(func() (cel.Program, error) {
			return a.env.Program(checked, cel.EvalOptions(cel.OptPartialEval),
				cel.CostLimit(constantLimit), cel.InterruptCheckFrequency(limits.CheckFrequency))
		})
	})
}

// Err returns the compilation error of the expression; nil if it compiles.
func (a *Analysis) Err() error {
	a.compile()
	return a.err
}

// Known has the facts that are known about all requests in advance.
type Known struct {
	// Operation is the operation of all requests; empty if there are several.
	Operation string
	// Group and Resource are the group and resource of request.resource; nil if there are several.
	Group, Resource *string
	// Namespace reports whether namespaceObject is the namespace, as in policies. In the
	// conditions of webhooks namespaceObject is null.
	Namespace bool
}

// Constant evaluates the expression like Eval, with the known values, and with unknown values for
// everything else. If the outcome depends only on known values, known is true, and value or err is
// the outcome for every request. known is false for an expression that is expensive to evaluate,
// and if ctx ends before the evaluation.
func (a *Analysis) Constant(ctx context.Context, k *Known) (value ref.Val, err error, known bool) {
	if a.compile(); a.err != nil {
		return nil, nil, false
	}
	program, err := a.program()
	if err != nil {
		return nil, nil, false
	}
	vars, unknown := k.activation()
	partial, err := cel.PartialVars(vars, unknown...)
	if err != nil {
		return nil, nil, false
	}
	value, details, err := program.ContextEval(ctx, partial)
	switch {
	case ctx.Err() != nil || details == nil || details.ActualCost() == nil || *details.ActualCost() > constantLimit:
		return nil, nil, false
	case err != nil:
		return nil, err, true
	case value == nil || types.IsUnknown(value):
		return nil, nil, false
	}
	return value, nil, true
}

// unknownFields are the fields of the variable request that are not known in advance.
var unknownFields = fields("requestKind", "requestResource", "subResource", "requestSubResource", "name", "namespace", "userInfo", "dryRun", "options")

func fields(names ...string) (list []*cel.AttributePatternType) {
	for _, name := range names {
		list = append(list, field(name))
	}
	return list
}

// hidden returns patterns for variables that are not known.
func hidden(names ...string) (list []*cel.AttributePatternType) {
	for _, name := range names {
		list = append(list, cel.AttributePattern(name))
	}
	return list
}

// field returns the pattern of a field of the variable request.
func field(path ...string) *cel.AttributePatternType {
	p := cel.AttributePattern("request")
	for _, name := range path {
		p = p.QualString(name)
	}
	return p
}

// activation returns the variables, and patterns for the unknown ones.
func (k *Known) activation() (vars map[string]any, unknown []*cel.AttributePatternType) {
	request, resource := map[string]any{}, map[string]any{}
	request["resource"] = resource
	vars = map[string]any{"request": request}
	unknown = slices.Concat(unknownFields, fields("kind"), hidden("params", "variables", "authorizer", "authorizer.requestResource"))
	unknown = append(unknown, field("resource", "version"))
	if k.Namespace {
		unknown = append(unknown, hidden("namespaceObject")...)
	} else {
		vars["namespaceObject"] = types.NullValue
	}
	object, old := true, true
	switch k.Operation {
	case "":
		unknown = append(unknown, field("operation"))
	case "CREATE", "CONNECT":
		old = false
	case "DELETE":
		object = false
	}
	if k.Operation != "" {
		request["operation"] = k.Operation
	}
	for name, there := range map[string]bool{"object": object, "oldObject": old} {
		if there {
			unknown = append(unknown, hidden(name)...)
		} else {
			vars[name] = types.NullValue
		}
	}
	for name, value := range map[string]*string{"group": k.Group, "resource": k.Resource} {
		if value != nil {
			resource[name] = *value
		} else {
			unknown = append(unknown, field("resource", name))
		}
	}
	return vars, unknown
}

// The size assumptions of Cost in addition to the size of lists. An API server bounds an object as
// a whole, so the lists in the elements of a long list are short: a pod of 200 containers with 5
// variables each is about the largest possible. Params are written manually.
const (
	nestedSize = 5
	paramsSize = 20
	textSize   = 100
	// podSize is the number of containers of a pod: 200 exist in no cluster.
	podSize = 20
)

// Cost returns an upper bound for the cost of one evaluation, in CEL cost units. It assumes that
// lists and maps of the input have at most size elements, but at most 5 if they are nested in
// another one, and at most 20 in params and for the containers of a pod; texts have at most 100 characters and 5 parts. Cost
// returns math.MaxUint64 if the cost has no bound, and 0 if the expression does not compile. It
// does not include the variables of a policy. A comparison with a size bounds the parts that are evaluated after it.
func (a *Analysis) Cost(size uint64) uint64 {
	if a.compile(); a.err != nil {
		return 0
	}
	// Most values in expressions have no type. The first estimate finds the values with loops over
	// them, so that the second estimate can distinguish lists from texts.
	known := estimator{&library.CostEstimator{SizeEstimator: &sizes{list: size, loops: map[string]bool{}, bounds: boundsOf(a.checked.NativeRep().Expr())}}}
	if _, err := a.env.EstimateCost(a.checked, known); err != nil {
		return math.MaxUint64
	}
	estimate, err := a.env.EstimateCost(a.checked, known)
	if err != nil {
		return math.MaxUint64
	}
	return estimate.Max
}

// sizes estimates the sizes of parts of the input.
type sizes struct {
	noCalls
	list uint64
	// loops are the paths of the values with loops over them.
	loops  map[string]bool
	bounds []bound
}

// EstimateSize implements checker.CostEstimator.
func (s *sizes) EstimateSize(node checker.AstNode) *checker.SizeEstimate {
	path := node.Path()
	depth := 0
	for i, step := range path {
		if step == "@items" || step == "@keys" || step == "@values" {
			s.loops[strings.Join(path[:i], "\x00")] = true
			depth++
		}
	}
	size := s.list
	switch kind := node.Type().Kind(); {
	case kind == types.StringKind || kind == types.BytesKind:
		size = textSize
	case len(path) == 0:
		// The expression computed the value.
	case kind != types.ListKind && kind != types.MapKind && !s.loops[strings.Join(path, "\x00")]:
		size = textSize
	case depth > 0:
		size = min(size, nestedSize)
	case path[0] == "params":
		size = min(size, paramsSize)
	case slices.Contains([]string{"containers", "initContainers", "ephemeralContainers"}, path[len(path)-1]):
		size = min(size, podSize)
	}
	for _, b := range s.bounds {
		if b.within[node.Expr().ID()] && slices.Equal(b.path, path) {
			size = min(size, b.most)
		}
	}
	return &checker.SizeEstimate{Min: 0, Max: size}
}

// estimator is the estimator of k8s.io/apiserver, except for the number of parts into which a text
// is split: k8s.io/apiserver assumes one part for each character.
type estimator struct{ *library.CostEstimator }

// EstimateCallCost implements checker.CostEstimator.
func (e estimator) EstimateCallCost(function, overload string, target *checker.AstNode, args []checker.AstNode) *checker.CallEstimate {
	estimate := e.CostEstimator.EstimateCallCost(function, overload, target, args)
	if estimate != nil && estimate.ResultSize != nil && (function == "split" || function == "findAll") {
		estimate.ResultSize = &checker.SizeEstimate{Min: 0, Max: min(estimate.ResultSize.Max, nestedSize)}
	}
	return estimate
}
