package expression

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	limits "k8s.io/apiserver/pkg/apis/cel"
)

const exceeded = "operation cancelled: actual cost limit exceeded"

// evaluateText evaluates an expression with an object, as a variable of a policy.
func evaluateText(ctx context.Context, text string, object map[string]any) (Outcome, error) {
	in := &Input{Object: &unstructured.Unstructured{Object: object}}
	run := NewValues(in).NewRun(ctx, Options{Budget: RunBudget})
	defer run.End()
	return run.Eval(New(text, Scope{}, nil, Anything))
}

// No call produces a value much larger than a request may be, whatever its cost. S16.23.
func TestNoValueTakesAllMemory(t *testing.T) {
	object := map[string]any{"s": strings.Repeat("x", 200), "mb": strings.Repeat("x", 1<<20)}
	for _, text := range []string{
		"object.s.replace('', object.s).replace('', object.s).replace('', object.s).size() > 0",
		"object.mb.replace('x', object.s).size() > 0",
		"dyn(object.mb).replace('', dyn(object.mb), 2000).size() > 0",
		"lists.range(400).map(i, object.mb).join(object.s).size() > 0",
		"'" + strings.Repeat("%s", 300) + "'.format([" + strings.TrimSuffix(strings.Repeat("object.mb,", 300), ",") + "]).size() > 0",
		"'%s'.format([lists.range(400).map(i, object.mb)]).size() > 0",
		"'%.999999999f'.format([1.0]).size() > 0",
		"lists.range(1000000000).size() > 0",
		"[lists.range(600000)].map(l, [l, l]).flatten().flatten().size() > 0",
		"lists.range(2000).map(i, lists.range(100000)).size() > 0",
		"[object.mb + object.mb].map(s, s + s).map(s, s + s).map(s, s + s).map(s, s + s).size() > 0",
		"[lists.range(1000000)].map(l, l + l).size() > 0",
		"lists.range(100000).map(i, object.s.replace('x', 'abababababababab')).size() > 0",
	} {
		t.Run(text[:min(len(text), 60)], func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			o, err := evaluateText(t.Context(), text, object)
			runtime.ReadMemStats(&after)
			if err != nil || o.Err == nil || !strings.HasSuffix(o.Err.Error(), exceeded) {
				t.Errorf("S16.23 value %v, error %v, %v", o.Value, o.Err, err)
			}
			if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 300 {
				t.Errorf("S16.23 it took %d MiB", took)
			}
		})
	}
}

// Within the limits, value and cost are the same as without them. S16.23.
func TestBoundsChangeNothingElse(t *testing.T) {
	// With so many elements, a comprehension would exceed MaxMade if each of its lists counted.
	var many []any
	for i := range 4000 {
		many = append(many, strconv.Itoa(i))
	}
	object := map[string]any{"many": many, "s": "a,b,,c", "l": []any{"x", "y", "x"}, "n": []any{int64(3), int64(1), int64(2)}, "big": strings.Repeat("ab", 1<<18), "nested": []any{[]any{int64(1), []any{int64(2), []any{int64(3)}}}}}
	for _, text := range []string{
		"object.s.replace(',', '--')", "object.s.replace('', '.')", "object.s.replace(',', '--', 2)", "object.s.replace(',', '--', 0)", "object.s.replace(',', '--', -1)", "dyn(object.s).replace('a', dyn('b'))",
		"object.s.split(',')", "object.s.split('')", "object.s.split(',', 2)", "object.s.split(',', 0)", "['a', 'b'].join()", "['a', 'b'].join(', ')", "object.l.join('-')", "[1, 2].map(i, string(i)).join(',')",
		"'%s %d %.3f %e %x %b %%'.format(['a', 1, 1.5, 2.5, 'abc', 5])", "'%s'.format([{'a': [1, 2.5, true]}])", "'%.9f'.format([1.0])",
		"lists.range(5)", "lists.range(0)", "[[1, 2], [3]].flatten()", "object.nested.flatten()", "object.nested.flatten(2)", "object.nested.flatten(-1)", "dyn([[1], [2]]).flatten()",
		"object.l.distinct()", "object.n.sort()", "object.n.sortBy(x, -x)", "object.l.reverse()", "object.l.slice(1, 2)",
		"object.s + object.s", "1 + 2", "[1] + [2]", "b'a' + b'b'", "object.big + object.big", "object.big.replace('a', 'xyz').size()", "object.big.split('a').size()", "object.big.split('')[5]",
		"object.s.lowerAscii()", "object.s.upperAscii()", "object.s.find('[a-c]')", "object.s.findAll('[a-c]')", "string(1)", "bytes('a')", "strings.quote('a')", "object.missing.replace('a', 'b')",
		"object.missing.join(', ')", "object.l.join(object.missing)", "object.missing.join()", "object.missing.split(',')", "object.missing.split(',', 2)", "object.s.split(object.missing, object.absent)", "'%s'.format([object.missing])", "object.missing.flatten(1)", "lists.range(object.missing)",
		"object.many.map(x, x)", "object.many.filter(x, x != '5')", "object.many.map(x, x != '5', x + 'a')", "object.many.transformList(i, x, i)", "object.many.map(x, [x, x])",
		"object.many.filter(x, (object.many + object.many).exists(y, y == '0')).size()", "lists.range(4000).map(x, x).map(x, x).size()",
		"[1, 2].all(i, i > 0) || object.missing.join() == ''",
	} {
		env := environmentOf(Scope{}).StoredExpressionsEnv()
		checked, issues := env.Compile(text)
		if issues.Err() != nil {
			t.Errorf("%s: %v", text, issues.Err())
			continue
		}
		plain, err := env.Program(checked, cel.InterruptCheckFrequency(limits.CheckFrequency))
		if err != nil {
			t.Fatal(err)
		}
		in := &Input{Object: &unstructured.Unstructured{Object: object}}
		run := NewValues(in).NewRun(t.Context(), Options{Budget: RunBudget})
		want, wantCost, wantErr := evaluate(t.Context(), plain, run)
		e := New(text, Scope{}, nil, Anything)
		if e.Err() != nil {
			t.Fatal(e.Err())
		}
		got, gotCost, gotErr := evaluate(t.Context(), e.program, run)
		run.End()
		switch {
		case wantErr != nil || gotErr != nil:
			if wantErr == nil || gotErr == nil || wantErr.Error() != gotErr.Error() {
				t.Errorf("S16.23 %s: error %v, want %v", text, gotErr, wantErr)
			}
		case got.Equal(want) != types.True:
			t.Errorf("S16.23 %s: %v, want %v", text, got, want)
		}
		if gotCost != wantCost {
			t.Errorf("S16.23 %s costs %d, want %d", text, gotCost, wantCost)
		}
	}
}

// Many concurrent evaluations hold little memory together: the others wait, and end with their
// requests. S16.23.
func TestFewEvaluationsAreLarge(t *testing.T) {
	object := map[string]any{"mb": strings.Repeat("x", 1<<20)}
	var held []*Run
	for range maxLarge {
		run := NewValues(&Input{Object: &unstructured.Unstructured{Object: object}}).NewRun(t.Context(), Options{Budget: RunBudget})
		held = append(held, run)
		if o, err := run.Eval(New("object.mb.replace('x', 'yy').size() > 0", Scope{}, nil, Bool)); err != nil || o.Err != nil {
			t.Fatalf("%v, %v", o.Err, err)
		}
	}
	// A small evaluation does not wait.
	if o, err := evaluateText(t.Context(), "object.mb.size() > 0 && ('a' + 'b').size() == 2", object); err != nil || o.Err != nil {
		t.Errorf("S16.23 a small evaluation: %v, %v", o.Err, err)
	}
	gone := errors.New("the client went away")
	ctx, cancel := context.WithCancelCause(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		o, err := evaluateText(ctx, "object.mb.replace('x', 'yy').size() > 0", object)
		if err != nil || o.Err == nil || !strings.Contains(o.Err.Error(), "operation interrupted") {
			t.Errorf("S16.23 an evaluation whose request ended: %v, %v", o.Err, err)
		}
	})
	all.Go(func() {
		if o, err := evaluateText(t.Context(), "object.mb.replace('x', 'yy').size() > 0", object); err != nil || o.Err != nil {
			t.Errorf("S16.23 an evaluation that waited: %v, %v", o.Err, err)
		}
	})
	time.AfterFunc(10*time.Millisecond, func() { cancel(gone) })
	<-ctx.Done()
	for _, run := range held {
		time.AfterFunc(20*time.Millisecond, run.End)
	}
	all.Wait()
	if o, _ := evaluateText(ctx, "object.mb.replace('x', 'yy').size() > 0", object); o.Err == nil || !strings.Contains(o.Err.Error(), "operation interrupted") {
		t.Errorf("S16.23 a large expression of a request that has ended: %v", o.Err)
	}
}
