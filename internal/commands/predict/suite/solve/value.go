package solve

import (
	"maps"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// resolved returns the schema that a wrapper without a type of its own refers to.
func resolved(s *spec.Schema) *spec.Schema {
	for s != nil && len(s.Type) == 0 && len(s.AllOf) == 1 {
		s = &s.AllOf[0]
	}
	return s
}

// schemaAt returns the schema of a field; nil if there is no such field. A field whose type is unknown has an empty
// schema.
func schemaAt(s *spec.Schema, path []any) *spec.Schema {
	for i, at := range path {
		if s = resolved(s); s == nil {
			return nil
		}
		name, isName := at.(string)
		switch {
		case isName && hasProperty(s, name):
			property := s.Properties[name]
			s = &property
		case isName && s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
			if s = resolved(s.AdditionalProperties.Schema); s != nil && isQuantity(s) && !isResource(name) {
				return nil
			}
		case !isName && s.Items != nil && s.Items.Schema != nil:
			s = s.Items.Schema
		case preserves(s) || len(s.Type) == 0 && len(s.Properties) == 0:
			return &spec.Schema{}
		case isName && i == 0 && slices.Contains([]string{"apiVersion", "kind", "metadata"}, name):
			return &spec.Schema{}
		default:
			return nil
		}
	}
	return resolved(s)
}

func hasProperty(s *spec.Schema, name string) bool { _, ok := s.Properties[name]; return ok }

func preserves(s *spec.Schema) bool {
	keeps, _ := s.Extensions.GetBool("x-kubernetes-preserve-unknown-fields")
	return keeps
}

func isIntOrString(s *spec.Schema) bool {
	either, _ := s.Extensions.GetBool("x-kubernetes-int-or-string")
	return either || s.Format == "int-or-string"
}

// isUnion reports whether an object has one of many members, such as a volume.
func isUnion(s *spec.Schema) bool {
	objects := 0
	for name := range s.Properties {
		property := s.Properties[name]
		if of := resolved(&property); of != nil && of.Type.Contains("object") {
			objects++
		}
	}
	return objects > 5 && objects >= len(s.Properties)-len(s.Required)-1
}

// isResource reports whether a name is the name of a resource with quantities.
func isResource(name string) bool {
	return strings.Contains(name, "/") || strings.HasPrefix(name, "hugepages-") || slices.Contains([]string{"cpu", "memory", "storage", "ephemeral-storage"}, name)
}

// isQuantity reports whether a value is a quantity such as 100Mi.
func isQuantity(s *spec.Schema) bool {
	return strings.HasPrefix(s.Description, "Quantity is a fixed-point representation")
}

// fits reports whether a value has the type of a schema.
func fits(value any, s *spec.Schema) bool {
	if s = resolved(s); s == nil || len(s.Type) != 1 || isIntOrString(s) || isQuantity(s) {
		return true
	}
	if len(s.Enum) > 0 && !slices.Contains(s.Enum, value) {
		return false
	}
	switch v := value.(type) {
	case string:
		return s.Type[0] == "string"
	case bool:
		return s.Type[0] == "boolean"
	case int64:
		return (s.Type[0] == "integer" || s.Type[0] == "number") && (s.Minimum == nil || float64(v) >= *s.Minimum) && (s.Maximum == nil || float64(v) <= *s.Maximum)
	case float64:
		return s.Type[0] == "number"
	case []any:
		return s.Type[0] == "array"
	case map[string]any:
		return s.Type[0] == "object"
	}
	return false
}

// texts are valid values of fields whose types say too little about them, by the end of their names.
var texts = []struct{ name, value string }{
	{"image", "example.com/app:1.0"}, {"mountPath", "/data"}, {"path", "/data"}, {"Path", "/data"}, {"topologyKey", "kubernetes.io/hostname"},
	{"operator", "Exists"}, {"schedule", "0 * * * *"}, {"apiVersion", "v1"}, {"kind", "Pod"}, {"driver", "csi.example.com"}, {"provisioner", "csi.example.com"},
	{"protocol", "TCP"}, {"ip", "192.0.2.1"}, {"cidr", "192.0.2.0/24"}, {"apiGroup", "rbac.authorization.k8s.io"}, {"accessModes", "ReadWriteOnce"},
	{"caBundle", "dGVzdA=="}, {"url", "https://example.com"}, {"api-approved.kubernetes.io", "unapproved"},
}

// Sample returns a small value that a schema allows. name is the name of the field.
func Sample(s *spec.Schema, name string) any { return sample(s, name, 0) }

// deepest bounds the depth of samples.
const deepest = 12

func sample(s *spec.Schema, name string, depth int) any {
	if s = resolved(s); s == nil || depth > deepest {
		return "test"
	}
	if len(s.Enum) > 0 {
		return s.Enum[0]
	}
	kind := ""
	if len(s.Type) > 0 {
		kind = s.Type[0]
	}
	isPort := strings.HasSuffix(strings.ToLower(name), "port")
	switch {
	case isQuantity(s):
		return "1"
	case isIntOrString(s) && isPort, kind == "integer" && isPort:
		return int64(8080)
	case isIntOrString(s):
		return int64(1)
	case kind == "integer" || kind == "number":
		if s.Minimum != nil && *s.Minimum > 1 {
			return int64(*s.Minimum)
		}
		return int64(1)
	case kind == "boolean":
		return true
	case kind == "array":
		if s.Items == nil {
			return []any{}
		}
		list := []any{sample(s.Items.Schema, name, depth+1)}
		for s.MinItems != nil && int64(len(list)) < *s.MinItems {
			list = append(list, list[0])
		}
		return list
	case kind == "object" || len(s.Properties) > 0:
		return sampleObject(s, depth)
	case kind == "" && preserves(s):
		return map[string]any{}
	}
	return sampleText(s, name)
}

func sampleObject(s *spec.Schema, depth int) any {
	object := map[string]any{}
	for _, field := range s.Required {
		property := s.Properties[field]
		object[field] = sample(&property, field, depth+1)
	}
	for _, field := range slices.Sorted(maps.Keys(s.Properties)) {
		if s.MinProperties == nil || int64(len(object)) >= *s.MinProperties {
			break
		}
		property := s.Properties[field]
		object[field] = sample(&property, field, depth+1)
	}
	// A container needs an image, which its schema does not require.
	if image, ok := s.Properties["image"]; ok && hasProperty(s, "imagePullPolicy") {
		object["image"] = sample(&image, "image", depth+1)
	}
	if len(s.Properties) == 0 && s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil && depth == 0 {
		key := "test"
		if of := resolved(s.AdditionalProperties.Schema); of != nil && isQuantity(of) {
			key = "cpu"
		}
		object[key] = sample(s.AdditionalProperties.Schema, "", depth+1)
	}
	return object
}

func sampleText(s *spec.Schema, name string) any {
	if s.Format == "date-time" {
		return "2026-01-01T00:00:00Z"
	}
	if s.Format == "byte" {
		return "dGVzdA=="
	}
	value := "test"
	if strings.HasPrefix(name, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix) {
		return corev1.DeprecatedAppArmorBetaProfileNameUnconfined
	}
	for _, t := range texts {
		if strings.HasSuffix(name, t.name) {
			value = t.value
			break
		}
	}
	if s.Pattern != "" {
		for _, made := range matching(s.Pattern) {
			if s.MinLength == nil || int64(len(made)) >= *s.MinLength {
				return made
			}
		}
	}
	for s.MinLength != nil && int64(len(value)) < *s.MinLength {
		value += "x"
	}
	return value
}

// matching returns short strings that a regular expression matches, if they can be derived from its parts.
func matching(expression string) (list []string) {
	parsed, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return nil
	}
	for _, choice := range []int{0, 1, 2} {
		var b strings.Builder
		spell(&b, parsed.Simplify(), choice, 0)
		if text := b.String(); !slices.Contains(list, text) && b.Len() < 2000 {
			list = append(list, text)
		}
	}
	return list
}

// spell writes a string that a regular expression matches. choice selects alternatives and optional parts.
func spell(b *strings.Builder, e *syntax.Regexp, choice, depth int) {
	if depth > 50 || b.Len() > 2000 {
		return
	}
	switch e.Op {
	case syntax.OpLiteral:
		b.WriteString(string(e.Rune))
	case syntax.OpCharClass:
		b.WriteRune(runeOf(e.Rune))
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		b.WriteString("a")
	case syntax.OpAlternate:
		spell(b, e.Sub[min(choice, len(e.Sub)-1)], choice, depth+1)
	case syntax.OpCapture, syntax.OpPlus:
		spell(b, e.Sub[0], choice, depth+1)
	case syntax.OpStar, syntax.OpQuest:
		if choice > 0 {
			spell(b, e.Sub[0], choice, depth+1)
		}
	case syntax.OpRepeat:
		for range e.Min {
			spell(b, e.Sub[0], choice, depth+1)
		}
	case syntax.OpConcat:
		for _, sub := range e.Sub {
			spell(b, sub, choice, depth+1)
		}
	}
}

// runeOf returns a character of a class, if possible a letter or a digit.
func runeOf(ranges []rune) rune {
	for _, want := range "axA0-" {
		for i := 0; i+1 < len(ranges); i += 2 {
			if ranges[i] <= want && want <= ranges[i+1] {
				return want
			}
		}
	}
	if len(ranges) > 0 && unicode.IsPrint(ranges[0]) {
		return ranges[0]
	}
	if len(ranges) > 1 {
		return ranges[1]
	}
	return 'a'
}

// unmatching returns strings of which a regular expression may match none.
func unmatching(expression, now string) []string {
	list := []string{"x" + now, now + "x", "-", "x", "other", ""}
	for _, made := range matching(expression) {
		list = append(list, made+"-", "-"+made)
	}
	return list
}

// differentFrom returns values that differ from a value.
func differentFrom(value any) []any {
	switch v := value.(type) {
	case bool:
		return []any{!v}
	case int64:
		return []any{v + 1, v - 1, int64(0), int64(1)}
	case float64:
		return []any{v + 1, v - 1}
	case string:
		if q, err := strconv.ParseInt(v, 10, 64); err == nil {
			return []any{strconv.FormatInt(q+1, 10), "other"}
		}
		switch v {
		case "true":
			return []any{"false", "other"}
		case "false":
			return []any{"true", "other"}
		}
		return []any{"other", v + "x", "x", ""}
	case []any:
		list := []any{[]any{}}
		if len(v) > 0 {
			list = append(list, v[:len(v)-1])
		}
		return append(list, append(slices.Clone(v), "other"))
	case map[string]any:
		return []any{map[string]any{}, map[string]any{"other": "other"}}
	}
	return []any{"other", int64(1), true}
}

// quantities returns quantities around another one.
func quantities(value any) []any {
	text, ok := value.(string)
	if n, isInt := value.(int64); isInt {
		text, ok = strconv.FormatInt(n, 10), true
	}
	q, err := resource.ParseQuantity(text)
	if !ok || err != nil {
		return nil
	}
	list := []any{text}
	for _, factor := range []int64{2, 10} {
		more := q.DeepCopy()
		for range factor - 1 {
			more.Add(q)
		}
		list = append(list, more.String())
	}
	if q.Value() > 1 {
		list = append(list, resource.NewQuantity(q.Value()/2, q.Format).String())
	}
	if m := q.MilliValue(); m > 1 {
		list = append(list, resource.NewMilliQuantity(m/2, q.Format).String())
	}
	return append(list, "0", "1m", "1", "1Ti")
}
