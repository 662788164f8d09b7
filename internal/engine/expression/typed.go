package expression

import (
	"github.com/google/cel-go/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
)

// Shapes are the types of the variables of a policy's expressions. A nil type is any type.
type Shapes struct {
	// Object is the type of object and oldObject, and Params the type of params.
	Object, Params *apiservercel.DeclType
	// HasParams declares params.
	HasParams bool
	// Authorizer declares authorizer and authorizer.requestResource, and Patches the types of
	// mutations.
	Authorizer, Patches bool
}

// Typed finds type errors in the expressions of a policy for objects of one kind (S16.17). It
// evaluates no expression, and is for one goroutine.
type Typed struct{ env *cel.Env }

// NewTyped compiles the variables of a policy, in order. A variable that does not compile may have
// any type. The error is a bug in this program.
func NewTyped(shapes Shapes, variables []Variable) (*Typed, error) {
	set, err := shapes.environment()
	if err != nil {
		return nil, err
	}
	object := newVariablesType()
	env, err := withVariables(set, object)
	if err != nil {
		return nil, err
	}
	for _, v := range variables {
		var output *cel.Type
		if checked, issues := env.Compile(v.Expression); issues == nil {
			output = checked.OutputType()
		}
		object.Fields[v.Name] = apiservercel.NewDeclField(v.Name, declared(output), true, nil, nil)
	}
	return &Typed{env}, nil
}

// Check returns the compiler's type errors for an expression; empty if there are none.
func (t *Typed) Check(expression string) string {
	if _, issues := t.env.Compile(expression); issues != nil {
		return issues.String()
	}
	return ""
}
