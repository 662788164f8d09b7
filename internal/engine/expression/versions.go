package expression

import (
	"maps"
	"slices"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"
)

// overloads has the functions of each release of Kubernetes.
var overloads sync.Map

// overloadsOf returns the names of all function overloads for new expressions of a release.
func overloadsOf(release *version.Version) map[string]bool {
	if known, ok := overloads.Load(release.String()); ok {
		return known.(map[string]bool)
	}
	names := map[string]bool{}
	for _, f := range environment.MustBaseEnvSet(release).NewExpressionsEnv().Functions() {
		for _, o := range f.OverloadDecls() {
			names[o.ID()] = true
		}
	}
	overloads.Store(release.String(), names)
	return names
}

// MissingIn returns the names of the expression's functions that a release of Kubernetes lacks;
// none if the expression does not compile here.
func (a *Analysis) MissingIn(release *version.Version) []string {
	if a.compile(); a.err != nil {
		return nil
	}
	here, there := overloadsOf(environment.DefaultCompatibilityVersion()), overloadsOf(release)
	return missing(a.checked, here, there)
}

func missing(checked *cel.Ast, here, there map[string]bool) []string {
	names := map[string]bool{}
	native := checked.NativeRep()
	for id, reference := range native.ReferenceMap() {
		if len(reference.OverloadIDs) == 0 || slices.ContainsFunc(reference.OverloadIDs, func(o string) bool { return there[o] || !here[o] }) {
			continue
		}
		names[callOf(native, id)] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// callOf returns the name of the function called at a place in an expression.
func callOf(native *ast.AST, id int64) string {
	name := ""
	ast.PreOrderVisit(native.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.ID() == id && e.Kind() == ast.CallKind {
			name = e.AsCall().FunctionName()
		}
	}))
	return name
}
