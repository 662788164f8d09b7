package suite

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/stage"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/suite/mutants"
	"github.com/gatehouse-dev/gatehouse/internal/engine/review"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
)

// mostTries bounds the requests tried to find one test.
const mostTries = 400

// First writes the first tests of the policies in a file: for each policy an allowed request, and for each validation a
// request that it rejects. A server evaluates every request before it is written. If no request is found, the text has
// a comment instead.
func First(ctx context.Context, file string, o Options) (text []byte, err error) {
	dir := filepath.Dir(file)
	s := &Suite{File: file, Format: "gatehouse", paths: []string{dir}, referenced: map[string]bool{}}
	set, err := world([]*Suite{s})
	if err != nil {
		return nil, err
	}
	var policies []*manifests.Object
	bound := map[string]bool{}
	for _, object := range set.Objects {
		switch kind := at(object.Content, "kind"); {
		case kind == "ValidatingAdmissionPolicyBinding":
			bound[at(object.Content, "spec", "policyName")] = true
		case kind == "ValidatingAdmissionPolicy" && filepath.Clean(object.File) == filepath.Clean(file):
			policies = append(policies, object)
		}
	}
	if len(policies) == 0 {
		return nil, &FileError{file, 0, "there is no ValidatingAdmissionPolicy in the file to make tests for"}
	}
	w, err := stage.Open(ctx, stage.Options{Webhooks: true, Gatehouse: o.Gatehouse, Fields: o.Fields})
	if err != nil {
		return nil, fmt.Errorf("starting a server to try requests with: %w", err)
	}
	defer w.Close()
	_, failures, err := load(ctx, w, set.Set)
	if err == nil && len(failures) > 0 {
		err = &worldError{failures}
	}
	if err != nil {
		return nil, err
	}
	var all strings.Builder
	for _, policy := range policies {
		f := &firstTests{ctx: ctx, stage: w, suite: s, policy: policy, name: at(policy.Content, "metadata", "name")}
		if !bound[f.name] {
			f.remark("no binding of %s is in %s: it decides nothing", f.name, dir)
		} else if err := f.make(); err != nil {
			return nil, err
		}
		all.WriteString(f.text.String())
	}
	if !strings.Contains("\n"+all.String(), "\n- ") {
		return nil, &FileError{file, 0, "no test could be made:\n" + strings.ReplaceAll(strings.TrimSpace(all.String()), "# Missing: ", "")}
	}
	head := fmt.Sprintf("# Made by 'gatehouse test --init'. A server decided each request as its test expects.\napiVersion: %s\nkind: %s\ntests:\n", ownVersion, ownKind)
	return []byte(head + all.String()), nil
}

// firstTests makes the tests of a policy.
type firstTests struct {
	ctx    context.Context
	stage  *stage.Stage
	suite  *Suite
	policy *manifests.Object
	name   string
	text   strings.Builder
	// operation and kind are the operation and the kind of the requests.
	operation string
	kind      *offline.Kind
	edits     []fieldEdit
}

// fieldEdit is one change of an object: a field is set or removed.
type fieldEdit struct {
	// path has names, and "[]" for the first element of a list.
	path  []string
	value any
	goes  bool
}

func (f *firstTests) remark(format string, args ...any) {
	fmt.Fprintf(&f.text, "# Missing: %s.\n", strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " "))
}

// attempted is the result of a tried request.
type attempted struct {
	object  map[string]any
	allowed bool
	// violated are the validations of the policy that reject it, with their messages. foreign is the reason of any
	// other rejection.
	violated map[int]string
	foreign  string
}

// make finds requests and writes their tests.
func (f *firstTests) make() error {
	if why := f.subject(); why != "" {
		f.remark("%s: %s", f.name, why)
		return nil
	}
	f.edits = f.changes()
	base, err := f.try(baseOf(f.kind))
	if err != nil {
		return err
	}
	if base.foreign != "" {
		f.remark("%s: no %s was found that the API takes (%s); write tests with one", f.name, f.kind.Kind.Kind, base.foreign)
		return nil
	}
	best := base
	for round := 0; !best.allowed && round < 6; round++ {
		next, err := f.better(best)
		if err != nil {
			return err
		}
		if next == nil {
			break
		}
		best = next
	}
	validations, _ := walk(f.policy.Content, "spec", "validations").([]any)
	if best.allowed {
		f.write(f.name+" allows", best.object, map[string]any{"allowed": true})
	} else {
		f.remark("%s: no %s was found that is allowed; write one", f.name, f.kind.Kind.Kind)
	}
	for i, v := range validations {
		found, err := f.rejected(best, base, i)
		if err != nil {
			return err
		}
		expression, _ := walk(v, "expression").(string)
		if found == nil {
			f.remark("%s: no request was found that spec.validations[%d] rejects (%s); write one", f.name, i, shorten(strings.Join(strings.Fields(expression), " ")))
			continue
		}
		by := map[string]any{"policy": f.name}
		if len(validations) > 1 {
			by["validation"] = i
		}
		f.write(fmt.Sprintf("%s rejects by spec.validations[%d]", f.name, i), found.object,
			map[string]any{"allowed": false, "by": by, "message": map[string]any{"contains": found.violated[i]}})
	}
	return nil
}

// write writes a test.
func (f *firstTests) write(name string, object, expect map[string]any) {
	request := map[string]any{"object": object}
	if f.operation != opCreate {
		request["operation"] = f.operation
	}
	switch f.operation {
	case opUpdate:
		request["oldObject"] = baseOf(f.kind)
	case opDelete:
		request["oldObject"] = object
		delete(request, "object")
	}
	// The fields are in the order in which people write them.
	fmt.Fprintf(&f.text, "- name: %s\n", name)
	for _, part := range []map[string]any{{"request": request}, {"expect": expect}} {
		data, err := yaml.Marshal(part)
		if err != nil {
			panic(fmt.Sprintf("suite: a test that was made: %v", err))
		}
		for line := range strings.Lines(string(data)) {
			f.text.WriteString("  " + line)
		}
	}
}

// subject chooses the operation and the kind of the requests. why is the reason if there is none.
func (f *firstTests) subject() (why string) {
	rules, _ := walk(f.policy.Content, "spec", "matchConstraints", "resourceRules").([]any)
	for _, rule := range rules {
		operations := textsOf(walk(rule, "operations"))
		for _, operation := range []string{opCreate, opUpdate, opDelete} {
			if !slices.Contains(operations, operation) && !slices.Contains(operations, "*") {
				continue
			}
			groups := textsOf(walk(rule, "apiGroups"))
			if slices.Contains(groups, "*") {
				groups = []string{"", "apps", "batch", "networking.k8s.io", "policy", "autoscaling", "rbac.authorization.k8s.io"}
			}
			for _, group := range groups {
				for _, resource := range textsOf(walk(rule, "resources")) {
					if resource == "*" {
						resource = map[string]string{"": "pods", "apps": "deployments", "batch": "jobs"}[group]
					}
					if gvr, ok := f.stage.Kinds().Served(group, resource); ok {
						f.operation, f.kind = operation, f.stage.Kinds().At(gvr)
						return ""
					}
				}
			}
		}
	}
	return "its rules match no object of a kind that the server has; write tests with requests that they match"
}

func textsOf(list any) (texts []string) {
	values, _ := list.([]any)
	for _, v := range values {
		if text, ok := v.(string); ok {
			texts = append(texts, text)
		}
	}
	return texts
}

// try evaluates a request.
func (f *firstTests) try(object map[string]any) (*attempted, error) {
	t := &Test{Suite: f.suite, request: request{operation: f.operation, object: object}}
	switch f.operation {
	case opUpdate:
		t.request.old = baseOf(f.kind)
	case opDelete:
		t.request.object, t.request.old = nil, object
	}
	o, err := t.judge(f.ctx, f.stage, &callers{}, nil)
	if err != nil {
		return nil, err
	}
	a := &attempted{object: object, allowed: o.Allowed, violated: map[int]string{}}
	for j := range o.trace.Verdicts(false).Judged() {
		if j.Policy.Configuration != f.name {
			continue
		}
		for i := range j.Evaluations {
			for _, v := range j.Evaluations[i].Validations {
				if v.Index != nil && v.Verdict == "violated" {
					a.violated[*v.Index] = v.Message
				}
			}
		}
	}
	if !o.Allowed && len(a.violated) == 0 {
		a.foreign = o.Message
	}
	return a, nil
}

// better returns an object with fewer violations, one or two changes away; nil if none is found.
func (f *firstTests) better(than *attempted) (*attempted, error) {
	tries := 0
	var found *attempted
	visit := func(object map[string]any) (done bool, err error) {
		if tries++; tries > mostTries {
			return true, nil
		}
		a, err := f.try(object)
		if err != nil {
			return true, err
		}
		if a.foreign == "" && (a.allowed || len(a.violated) < len(than.violated)) && (found == nil || len(a.violated) < len(found.violated)) {
			found = a
		}
		return found != nil && found.allowed, nil
	}
	for _, e := range f.edits {
		if done, err := visit(e.of(than.object)); done || err != nil {
			return found, err
		}
	}
	for i := 0; found == nil && i < len(f.edits); i++ {
		for j := range f.edits {
			if i == j {
				continue
			}
			if done, err := visit(f.edits[j].of(f.edits[i].of(than.object))); done || err != nil {
				return found, err
			}
		}
	}
	return found, nil
}

// rejected returns a request that a validation rejects, if possible that validation alone; nil if none is found.
func (f *firstTests) rejected(best, base *attempted, i int) (*attempted, error) {
	var found *attempted
	// The first change is empty.
	changes := append([]fieldEdit{{}}, f.edits...)
	for _, from := range []*attempted{best, base} {
		for _, e := range changes[:min(len(changes), mostTries/2)] {
			a, err := f.try(e.of(from.object))
			if err != nil {
				return nil, err
			}
			if _, ok := a.violated[i]; ok && a.foreign == "" && (found == nil || len(a.violated) < len(found.violated)) {
				found = a
			}
			if found != nil && len(found.violated) == 1 {
				return found, nil
			}
		}
	}
	return found, nil
}

// of returns a copy of an object with the change.
func (c fieldEdit) of(object map[string]any) map[string]any {
	copied := runtime.DeepCopyJSON(object)
	if len(c.path) > 0 {
		alter(copied, c)
	}
	return copied
}

// alter changes a field at a path, and creates missing parents.
func alter(within any, c fieldEdit) any {
	name, last := c.path[0], len(c.path) == 1
	if name == "[]" {
		list, _ := within.([]any)
		switch {
		case last && c.goes:
			return []any{}
		case len(list) == 0 && c.goes:
			return list
		case len(list) == 0:
			list = []any{nil}
		}
		if last {
			list[0] = c.value
		} else {
			list[0] = alter(list[0], fieldEdit{c.path[1:], c.value, c.goes})
		}
		return list
	}
	m, _ := within.(map[string]any)
	if m == nil {
		if c.goes {
			return within
		}
		m = map[string]any{}
	}
	switch {
	case last && c.goes:
		delete(m, name)
	case last:
		m[name] = runtime.DeepCopyJSONValue(c.value)
	default:
		if changed := alter(m[name], fieldEdit{c.path[1:], c.value, c.goes}); changed != nil {
			m[name] = changed
		}
	}
	return m
}

// changes derives changes from the expressions of the policy: to each field that they read, its constants, neighbouring
// values, and absence.
func (f *firstTests) changes() []fieldEdit {
	r := &reading{of: map[string][]string{"object": {}}}
	if f.operation == opDelete {
		r.of = map[string][]string{"oldObject": {}}
	}
	variables, _ := walk(f.policy.Content, "spec", "variables").([]any)
	for _, v := range variables {
		text, _ := walk(v, "expression").(string)
		name, _ := walk(v, "name").(string)
		if parsed := mutants.Parse(text); parsed != nil {
			e := parsed.Expr()
			r.read(e)
			if path, ok := r.path(e); ok {
				r.of["variables."+name] = path
			}
		}
	}
	for _, list := range []string{"matchConditions", "validations"} {
		elements, _ := walk(f.policy.Content, "spec", list).([]any)
		for _, v := range elements {
			text, _ := walk(v, "expression").(string)
			if parsed := mutants.Parse(text); parsed != nil {
				r.read(parsed.Expr())
			}
		}
	}
	return r.list
}

// reading collects the fields and values in expressions.
type reading struct {
	// of has the paths of variables.
	of   map[string][]string
	list []fieldEdit
}

// path returns the path of the field that an expression reads; ok is false for other expressions.
func (r *reading) path(e ast.Expr) (path []string, ok bool) {
	switch e.Kind() {
	case ast.IdentKind:
		path, ok = r.of[e.AsIdent()]
	case ast.SelectKind:
		s := e.AsSelect()
		if s.Operand().Kind() == ast.IdentKind && s.Operand().AsIdent() == "variables" {
			path, ok = r.of["variables."+s.FieldName()]
			break
		}
		if path, ok = r.path(s.Operand()); ok {
			path = append(slices.Clone(path), s.FieldName())
		}
	case ast.CallKind:
		call := e.AsCall()
		switch name := call.FunctionName(); {
		case name == operators.Index || name == operators.OptIndex || name == operators.OptSelect:
			if path, ok = r.path(call.Args()[0]); ok {
				key := "[]"
				if text, isText := constant(call.Args()[1]).(string); isText {
					key = text
				}
				path = append(slices.Clone(path), key)
			}
		case call.IsMemberFunction() && (name == "orValue" || name == "filter" || name == "lowerAscii"):
			path, ok = r.path(call.Target())
		}
	}
	return path, ok
}

// constant returns the value of a literal; nil for other expressions.
func constant(e ast.Expr) any {
	if e.Kind() != ast.LiteralKind {
		return nil
	}
	return ref.Val(e.AsLiteral()).Value()
}

// add notes possible values of a field.
func (r *reading) add(path []string, values ...any) {
	if len(path) == 0 {
		return
	}
	for _, v := range values {
		c := fieldEdit{path: path, value: v}
		if !slices.ContainsFunc(r.list, func(o fieldEdit) bool { return slices.Equal(o.path, path) && !o.goes && review.Equal(o.value, v) }) {
			r.list = append(r.list, c)
		}
	}
	if !slices.ContainsFunc(r.list, func(o fieldEdit) bool { return slices.Equal(o.path, path) && o.goes }) {
		r.list = append(r.list, fieldEdit{path: path, goes: true})
	}
}

// read analyzes an expression.
func (r *reading) read(e ast.Expr) {
	if path, ok := r.path(e); ok && len(path) > 1 {
		r.add(path)
	}
	if e.Kind() == ast.CallKind {
		call := e.AsCall()
		args := call.Args()
		if call.IsMemberFunction() {
			if path, ok := r.path(call.Target()); ok && len(args) > 1 && args[0].Kind() == ast.IdentKind {
				// A macro iterates over the elements of a list, or the keys of a map.
				name := args[0].AsIdent()
				before, there := r.of[name]
				r.of[name] = append(slices.Clone(path), "[]")
				r.add(path)
				for _, arg := range args[1:] {
					r.read(arg)
				}
				if delete(r.of, name); there {
					r.of[name] = before
				}
				return
			}
			r.method(call)
		}
		if len(args) == 2 {
			r.compared(call.FunctionName(), args[0], args[1])
			r.compared(call.FunctionName(), args[1], args[0])
		}
	}
	for _, child := range mutants.Children(e) {
		r.read(child)
	}
}

// compared notes values that a comparison distinguishes.
func (r *reading) compared(operator string, of, with ast.Expr) {
	if of.Kind() == ast.CallKind && of.AsCall().FunctionName() == "size" {
		call := of.AsCall()
		sized := call.Target()
		if !call.IsMemberFunction() {
			sized = call.Args()[0]
		}
		if n, ok := constant(with).(int64); ok {
			if path, found := r.path(sized); found {
				for _, length := range []int64{n, n - 1, n + 1} {
					if length >= 0 && length < 300 {
						r.add(path, strings.Repeat("a", int(length)))
					}
				}
			}
		}
		return
	}
	path, ok := r.path(of)
	if !ok {
		return
	}
	switch value := constant(with).(type) {
	case int64:
		r.add(path, value, value-1, value+1)
	case string:
		if operator == operators.In {
			r.add(append(slices.Clone(path), value), "x", "1")
			return
		}
		r.add(path, value, value+"x")
	case bool:
		r.add(path, value, !value)
	case float64:
		r.add(path, value, value-1, value+1)
	}
	if with.Kind() == ast.ListKind {
		for _, element := range with.AsList().Elements() {
			if value := constant(element); value != nil {
				r.add(path, value)
			}
		}
		r.add(path, "other")
	}
}

// method notes strings that a method distinguishes.
func (r *reading) method(call ast.CallExpr) {
	path, ok := r.path(call.Target())
	if !ok || len(call.Args()) != 1 {
		return
	}
	text, isText := constant(call.Args()[0]).(string)
	if !isText {
		return
	}
	switch call.FunctionName() {
	case "startsWith":
		r.add(path, text+"x", "x"+text)
	case "endsWith":
		r.add(path, "x"+text, text+"x")
	case "contains":
		r.add(path, "x"+text+"x", "x")
	case "matches":
		r.add(path, matchOf(text), "-")
	}
}

// matchOf returns a short string that a regular expression matches, if it can be derived from its parts.
func matchOf(expression string) string {
	parsed, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return ""
	}
	var b strings.Builder
	var add func(*syntax.Regexp)
	add = func(e *syntax.Regexp) {
		switch e.Op {
		case syntax.OpLiteral:
			b.WriteString(string(e.Rune))
		case syntax.OpCharClass:
			if len(e.Rune) > 0 {
				b.WriteRune(e.Rune[len(e.Rune)-1])
			}
		case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
			b.WriteString("a")
		case syntax.OpAlternate, syntax.OpCapture, syntax.OpPlus:
			add(e.Sub[0])
		case syntax.OpRepeat:
			for range e.Min {
				add(e.Sub[0])
			}
		case syntax.OpConcat:
			for _, sub := range e.Sub {
				add(sub)
			}
		}
	}
	add(parsed)
	return b.String()
}

// baseOf returns a small valid object of a kind, if the kind requires no other fields than those set here.
func baseOf(kind *offline.Kind) map[string]any {
	apiVersion, name := kind.Kind.GroupVersion().String(), kind.Kind.Kind
	object := map[string]any{"apiVersion": apiVersion, "kind": name, "metadata": map[string]any{"name": "test"}}
	spec := func() map[string]any {
		return map[string]any{"containers": []any{map[string]any{"name": "main", "image": "example.com/app:1.0"}}}
	}
	labels := map[string]any{"app": "test"}
	template := func(restart string) map[string]any {
		pod := spec()
		if restart != "" {
			pod["restartPolicy"] = restart
		}
		return map[string]any{"metadata": map[string]any{"labels": labels}, "spec": pod}
	}
	selector := map[string]any{"matchLabels": labels}
	known := map[schema.GroupKind]any{
		{Kind: "Pod"}:                                  spec(),
		{Group: "apps", Kind: "Deployment"}:            map[string]any{"selector": selector, "template": template("")},
		{Group: "apps", Kind: "ReplicaSet"}:            map[string]any{"selector": selector, "template": template("")},
		{Group: "apps", Kind: "DaemonSet"}:             map[string]any{"selector": selector, "template": template("")},
		{Group: "apps", Kind: "StatefulSet"}:           map[string]any{"selector": selector, "serviceName": "test", "template": template("")},
		{Group: "batch", Kind: "Job"}:                  map[string]any{"template": template("Never")},
		{Group: "batch", Kind: "CronJob"}:              map[string]any{"schedule": "0 * * * *", "jobTemplate": map[string]any{"spec": map[string]any{"template": template("Never")}}},
		{Kind: "Service"}:                              map[string]any{"selector": labels, "ports": []any{map[string]any{"port": int64(80)}}},
		{Kind: "PersistentVolumeClaim"}:                map[string]any{"accessModes": []any{"ReadWriteOnce"}, "resources": map[string]any{"requests": map[string]any{"storage": "1Gi"}}},
		{Group: "policy", Kind: "PodDisruptionBudget"}: map[string]any{"minAvailable": int64(1), "selector": selector},
		{Group: "networking.k8s.io", Kind: "Ingress"}: map[string]any{"defaultBackend": map[string]any{
			"service": map[string]any{"name": "test", "port": map[string]any{"number": int64(80)}}}},
		{Group: "networking.k8s.io", Kind: "NetworkPolicy"}:     map[string]any{"podSelector": map[string]any{}},
		{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}: map[string]any{"maxReplicas": int64(3), "scaleTargetRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "test"}},
	}
	if made, ok := known[kind.Kind.GroupKind()]; ok {
		object["spec"] = made
	}
	if role, ok := strings.CutSuffix(name, "Binding"); ok && kind.Kind.Group == "rbac.authorization.k8s.io" {
		object["roleRef"] = map[string]any{"apiGroup": kind.Kind.Group, "kind": role, "name": "test"}
	}
	if kind.Namespaced {
		object["metadata"].(map[string]any)["namespace"] = "default"
	}
	return runtime.DeepCopyJSON(object)
}
