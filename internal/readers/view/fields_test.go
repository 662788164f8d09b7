package view

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
)

var (
	rawType  = reflect.TypeFor[json.RawMessage]()
	timeType = reflect.TypeFor[trace.Time]()
)

// fill gives each field of v a distinct value: lists and maps get one element, pointers a target.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Type() {
	case rawType:
		v.SetBytes(fmt.Appendf(nil, `"v%d"`, *n))
		return
	case timeType:
		v.Set(reflect.ValueOf(at(*n)))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprintf("v%d", *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Float64:
		v.SetFloat(float64(*n))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), n)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("key"), reflect.ValueOf("value"))
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), n)
			}
		}
	default:
		panic(v.Type())
	}
}

// leaves calls visit with each value in v that has no fields, and with its JSON path.
func leaves(v reflect.Value, path string, visit func(path string, v reflect.Value)) {
	switch {
	case v.Type() == rawType || v.Type() == timeType:
		visit(path, v)
	case v.Kind() == reflect.Pointer:
		if !v.IsNil() {
			leaves(v.Elem(), path, visit)
		}
	case v.Kind() == reflect.Slice:
		if v.Len() > 0 {
			leaves(v.Index(0), path, visit)
		}
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ","); name != "" && name != "-" {
				leaves(v.Field(i), strings.TrimPrefix(path+"."+name, "."), visit)
			}
		}
	default:
		visit(path, v)
	}
}

// otherwise changes a value, and returns a function that restores it.
func otherwise(v reflect.Value) func() {
	before := reflect.New(v.Type()).Elem()
	before.Set(v)
	switch {
	case v.Type() == rawType:
		v.SetBytes([]byte(`"another"`))
	case v.Type() == timeType:
		t := v.Interface().(trace.Time)
		t.Time = t.Add(time.Second)
		v.Set(reflect.ValueOf(t))
	case v.Kind() == reflect.Bool:
		v.SetBool(!v.Bool())
	case v.CanInt():
		v.SetInt(v.Int() + 77_777)
	case v.CanFloat():
		v.SetFloat(v.Float() + 77_777)
	case v.Kind() == reflect.String:
		v.SetString("another")
	case v.Kind() == reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{"another": "another"}))
	default:
		panic(v.Type())
	}
	return func() { v.Set(before) }
}

var formats = []string{"text", "markdown", "html"}

func drawnAs(t *testing.T, d *Document, format string) string {
	t.Helper()
	var b strings.Builder
	if err := d.Format(&b, format); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// leftOut lists fields that some formats omit, and the reason. paths is a regular expression.
type leftOut struct{ paths, formats, why string }

// everyField checks that each field appears in each format: a changed value must change the drawing of
// at least one case. Exactly the fields of left are exempt.
func everyField[T any](t *testing.T, cases []T, draw func(*T) *Document, left []leftOut) {
	seen, fields := map[string]bool{}, map[string]bool{}
	for i := range cases {
		one := &cases[i]
		before := map[string]string{}
		for _, format := range formats {
			before[format] = drawnAs(t, draw(one), format)
		}
		leaves(reflect.ValueOf(one).Elem(), "", func(path string, v reflect.Value) {
			fields[path] = true
			back := otherwise(v)
			for _, format := range formats {
				seen[format+" "+path] = seen[format+" "+path] || drawnAs(t, draw(one), format) != before[format]
			}
			back()
		})
	}
	if len(fields) < 30 {
		t.Fatalf("%d fields were found", len(fields))
	}
	used := make([]bool, len(left))
	for path := range fields {
		for _, format := range formats {
			out := false
			for i := range left {
				if strings.Contains(left[i].formats, format) && regexp.MustCompile("^("+left[i].paths+")$").MatchString(path) {
					out, used[i] = true, true
				}
			}
			switch drawn := seen[format+" "+path]; {
			case !drawn && !out:
				t.Errorf("%s does not show %s: draw it, or say here why not", format, path)
			case drawn && out:
				t.Errorf("%s shows %s: it is not left out", format, path)
			}
		}
	}
	for i := range left {
		if !used[i] || left[i].why == "" {
			t.Errorf("nothing is left out, or for no reason: %+v", left[i])
		}
	}
}

// Each field of a trace appears on a terminal, in Markdown and in HTML, except fields with a documented
// reason.
func TestEveryFieldOfATraceIsDrawn(t *testing.T) {
	var cases []trace.Record
	for variant := range 8 {
		soft, allowed, plain := variant&1 > 0, variant&2 > 0, variant&4 > 0
		var r trace.Record
		n := 0
		fill(reflect.ValueOf(&r).Elem(), &n)
		s := &r.Steps[0]
		s.Allowed, r.TotalMicros = allowed, 5_000_000
		if r.Response.Code = 422; allowed {
			r.Outcome = trace.OutcomeAllowed
		}
		j := &s.Judgements[0]
		e, c := &j.Evaluations[0], &j.Consequences[0]
		e.Validations[0].Verdict = "violated"
		m := &e.Mutations[0]
		patches := [][]trace.PatchOperation{s.Patch, s.Written, m.Patch, m.WouldPatch}
		for _, call := range []*trace.CallRecord{&s.Calls[0], &s.Discarded[0]} {
			call.Verdict, call.Turn, call.Fate, call.Equivalent, call.Ignored, call.Sent = "denied", "Ahead", "NotReached", !plain, !soft && allowed, false
			patches = append(patches, call.Patch, call.WouldPatch)
			if !soft {
				call.Enforcement, call.WouldPatch = nil, nil
			}
		}
		if !soft {
			e.Enforcement, m.WouldPatch, c.Enforcement = nil, nil, nil
		}
		if plain {
			for _, p := range patches {
				p[0].From, p[0].WasBytes = "", 0
			}
			s.Round, m.Error, e.AuditAnnotations[0].Error = 0, "", ""
			// A trace written by a server, not derived from an audit log.
			r.Audit, s.Known, j.Known, s.Calls[0].Known, s.Discarded[0].Known = nil, "", "", "", ""
			c.Denied, c.Ignored = false, false
		}
		// A request about several objects.
		r.Steps = append(r.Steps, trace.StepRecord{Plugin: "Last", Pass: "validating", Allowed: true})
		cases = append(cases, r)
	}
	everyField(t, cases, func(r *trace.Record) *Document { return OfTrace(r, Links{}) }, []leftOut{
		{`steps\.(conditions|exclusions|skips)\.(entry|entries)\.(kind|index|source)`, "text markdown html", "the name of a webhook or policy says which it is"},
		{`steps\.conditions\.(micros|errors)`, "text markdown html", "metrics have what conditions cost"},
		{`steps\.skips\.code`, "text markdown html", "the reason is a sentence that says it"},
		{`steps\.discarded\.turn`, "text markdown html", "only calls ahead of their turn have answers that are not used"},
		{`steps(\.calls|\.discarded|\.judgements\.evaluations)?\.start`, "text markdown", "a page draws it as a bar; what took the time is everywhere"},
		{`steps(\.calls|\.discarded|\.judgements\.evaluations\.mutations)?\.(patch|wouldPatch|written)\.path`, "markdown html", "the field says it, by the names of elements"},
		{`steps(\.calls|\.discarded|\.judgements\.evaluations\.mutations)?\.(patch|wouldPatch|written)\.field`, "text", "the operation of the patch stands there, with its path"},
		{`request\.(uid|kind\..*|resource\.version)`, "text", "the resource and the name say it; a terminal has no room for what is rarely asked"},
		{`steps\.(namespace|revision|readAt)`, "text", "it is that of the request nearly always"},
		{`steps\.(calls|discarded)\.(webhook\.(kind|index|source)|failurePolicy|rule|resource\..*|subresource|reviewVersion|uid|class|code|reason)|steps\.calls\.fate`, "text", "details of the call; the error says what failed"},
		{`steps\.judgements\.(policy\.(kind|index|source)|failurePolicy|rule|resource\..*|subresource)`, "text", "details of the policy"},
		{`steps\.judgements\.consequences\.(code|reason|index|annotation)`, "text", "the message says it"},
		{`steps\.judgements\.evaluations\.validations\.(index|message|nanos)`, "text", "the expression stands there, and the message below it"},
	})
}

// Each field of a plan appears on a terminal, in Markdown and in HTML, except fields with a documented
// reason.
func TestEveryFieldOfAPlanIsDrawn(t *testing.T) {
	var cases []plan.Plan
	for _, effect := range []plan.Effect{plan.Reject, plan.Evaluate, plan.Call, plan.Skip} {
		for _, exclusion := range []string{"ignoreFailures", "capTimeout"} {
			for variant := range 2 {
				var p plan.Plan
				n := 0
				fill(reflect.ValueOf(&p).Elem(), &n)
				s := &p.Steps[0]
				s.Effect, s.Exclusions[0].Effect = effect, exclusion
				s.Patch = json.RawMessage(`[{"op":"add","path":"/a","value":1}]`)
				s.Evaluations[0].Mutations[0].Patch = json.RawMessage(`[{"op":"add","path":"/b","value":1}]`)
				s.Evaluations[0].Validations[0].Verdict = "violated"
				if variant > 0 {
					s.Reason, s.Entry, s.Consequences[0].Spared, p.Rejection = nil, nil, false, ""
				}
				cases = append(cases, p)
			}
		}
	}
	everyField(t, cases, func(p *plan.Plan) *Document { return OfPlans([]Explained{{Plan: p}}, Links{}) }, []leftOut{
		{`likely`, "text markdown html", "it is among the causes"},
		{`revision`, "text", "a plan is made of what is in force now"},
		{`steps\.as\.(resource.*|subresource)`, "text markdown html", "the kind says it"},
		{`steps\.(reason|bindings\.reason)\.code`, "text markdown html", "the message says it"},
		{`steps\.consequences\.(code|reason|param|denied|ignored)`, "text markdown html", "the message says it, and the effect of the step"},
		{`steps\.evaluations\.validations\.message`, "text", "the remark has it"},
		{`steps\.entry\.(index|source|kind)`, "text markdown html", "the name of a webhook or policy says which it is"},
		{`steps\.reviewVersion`, "text markdown html", "nobody asks before the request"},
	})
}
