package expressioncost

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/openapi"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/engine/expression"
)

const (
	// maxKinds bounds the kinds of one policy for which the worst case is computed. It is the
	// number of kinds that the type check checks.
	maxKinds = 10
	// remembered is how long types of schemas are kept at most, and maxSchemas how many are kept.
	remembered = 10 * time.Second
	maxSchemas = 100
)

// Cost is the cost of one expression, in the units of CEL.
type Cost struct {
	// Field is the path of the expression in the policy.
	Field string
	// WorstCase is the highest possible cost for the kinds that the rules of the policy name;
	// nil when no schema bounds the cost. Measured is the highest cost of an evaluation so far
	// in this process.
	WorstCase *uint64
	Measured  uint64
	// Limit is the highest cost that an evaluation may have.
	Limit uint64
}

// High reports whether the cost is half of the limit or more.
func (c *Cost) High() bool {
	return c.Measured >= c.Limit/2 || c.WorstCase != nil && *c.WorstCase >= c.Limit/2
}

// Message describes a high cost in a sentence.
func (c *Cost) Message() string {
	var parts []string
	if c.Measured >= c.Limit/2 {
		parts = append(parts, fmt.Sprintf("it cost %d so far", c.Measured))
	}
	if c.WorstCase != nil && *c.WorstCase >= c.Limit/2 {
		parts = append(parts, fmt.Sprintf("it costs %s in the worst case that the schema allows", fmt.Sprint(*c.WorstCase)))
	}
	return fmt.Sprintf("%s: %s, and fails when it costs more than %d", c.Field, strings.Join(parts, ", and "), c.Limit)
}

// Estimator estimates the costs of policies. It is safe for concurrent use.
type Estimator struct {
	schemas resolver.SchemaResolver
	kinds   meta.RESTMapper

	mu struct {
		sync.Mutex
		// types make the types of a kind on first use.
		types map[schema.GroupVersionKind]func() *expression.Types
	}
}

// New returns an Estimator. schemas finds the schemas of kinds, kinds the kinds of
// resources.
func New(schemas resolver.SchemaResolver, kinds meta.RESTMapper) *Estimator {
	e := &Estimator{schemas: schemas, kinds: kinds}
	e.mu.types = map[schema.GroupVersionKind]func() *expression.Types{}
	return e
}

// Of returns the costs of the expressions of a policy, in the order of the fields; nil for
// other entries.
func (e *Estimator) Of(entry *snapshot.Entry) []Cost {
	if entry.Policy == nil {
		return nil
	}
	kinds := e.kindsOf(entry.Rules)
	var list []Cost
	for _, c := range entry.Policy.Costs() {
		one := Cost{Field: c.Field, Measured: c.Most, Limit: c.Limit}
		for i, kind := range kinds {
			cost, ok := expression.Estimate(c.Text, c.Scope, e.types(kind))
			if !ok {
				one.WorstCase = nil
				break
			}
			if i == 0 || cost > *one.WorstCase {
				one.WorstCase = &cost
			}
		}
		list = append(list, one)
	}
	return list
}

// kindsOf returns the kinds that rules name; none if a rule has a wildcard or a resource
// without a known kind, or if there are more than maxKinds.
func (e *Estimator) kindsOf(rules []registration.Rule) []schema.GroupVersionKind {
	var kinds []schema.GroupVersionKind
	for i := range rules {
		r := &rules[i]
		for _, group := range r.APIGroups {
			for _, version := range r.APIVersions {
				for _, resource := range r.Resources {
					if group == "*" || version == "*" || strings.ContainsAny(resource, "*/") {
						return nil
					}
					found, err := e.kinds.KindsFor(schema.GroupVersionResource{Group: group, Version: version, Resource: resource})
					if err != nil {
						return nil
					}
					for _, kind := range found {
						if kind.Group == group && kind.Version == version && !slices.Contains(kinds, kind) {
							kinds = append(kinds, kind)
						}
					}
					if len(kinds) > maxKinds {
						return nil
					}
				}
			}
		}
	}
	return kinds
}

// types returns the types of the schema of a kind, without an object if there is no schema.
// Concurrent policies share the types.
func (e *Estimator) types(kind schema.GroupVersionKind) *expression.Types {
	e.mu.Lock()
	types := e.mu.types[kind]
	if types == nil {
		if len(e.mu.types) >= maxSchemas {
			clear(e.mu.types)
		}
		if len(e.mu.types) == 0 {
			time.AfterFunc(remembered, e.forget)
		}
		types = sync.OnceValue(func() *expression.Types { return e.typesOf(kind) })
		e.mu.types[kind] = types
	}
	e.mu.Unlock()
	return types()
}

// forget drops all types: schemas may change, and types take memory.
func (e *Estimator) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.mu.types)
}

func (e *Estimator) typesOf(kind schema.GroupVersionKind) *expression.Types {
	s, err := e.schemas.ResolveSchema(kind)
	if err != nil {
		return &expression.Types{}
	}
	object := common.SchemaDeclType(&openapi.Schema{Schema: s}, true)
	if object == nil {
		return &expression.Types{}
	}
	return &expression.Types{
		Object: object.MaybeAssignTypeName(kind.Kind + "Estimated"),
		Bound:  func(path []string) (uint64, bool) { return bound(s, path) },
	}
}

// metadata are the bounds that the API sets on all objects.
var metadata = map[string]uint64{"name": 253, "namespace": 63, "uid": 36}

// bound returns the greatest length that the schema allows for the value at a path.
func bound(s *spec.Schema, path []string) (uint64, bool) {
	if len(path) == 2 && path[0] == "metadata" {
		if most, ok := metadata[path[1]]; ok {
			return most, true
		}
	}
	for _, name := range path {
		if s = child(s, name); s == nil {
			return 0, false
		}
	}
	var most *int64
	switch {
	case s.MaxItems != nil:
		most = s.MaxItems
	case s.MaxLength != nil:
		most = s.MaxLength
	case s.MaxProperties != nil:
		most = s.MaxProperties
	case len(s.Enum) > 0:
		longest := int64(0)
		for _, value := range s.Enum {
			if word, ok := value.(string); ok {
				longest = max(longest, int64(len(word)))
			}
		}
		most = &longest
	}
	if most == nil || *most < 0 {
		return 0, false
	}
	return uint64(*most), true
}

// child is the schema of a part of a value, nil if there is none.
func child(s *spec.Schema, name string) *spec.Schema {
	switch {
	case name == "@items" && s.Items != nil:
		return s.Items.Schema
	case name == "@values" && s.AdditionalProperties != nil:
		return s.AdditionalProperties.Schema
	}
	if found, ok := s.Properties[name]; ok {
		return &found
	}
	for i := range s.AllOf {
		if found := child(&s.AllOf[i], name); found != nil {
			return found
		}
	}
	return nil
}
