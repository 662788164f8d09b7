package expression

import (
	"math"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/decls"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/operators"
	standard "github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// Limits of the memory of values (S16.23). Cost limits count steps, and a call that costs a few
// units may produce a value of gigabytes.
const (
	// MaxValue bounds the bytes of a value produced by a function. An element of a list counts as
	// 16 bytes.
	MaxValue = 16 << 20
	// MaxMade bounds the total bytes of these values in a Run.
	MaxMade = 64 << 20
	// element is the size of an element of a list.
	element = 16
	// small is the size up to which a value is not counted.
	small = 256
)

// makers are the functions whose texts and lists can be as large as their arguments or larger. The
// map value bounds the size of the result before the call; nil for a function whose result is not
// larger than its arguments, or whose cost is as large as its result.
var makers = map[string]func(args []ref.Val) int{
	"replace": sizeOfReplaced, "join": sizeOfJoined, "format": sizeOfFormatted, "split": sizeOfSplit,
	"lists.range": sizeOfRange, "flatten": sizeOfFlat,
	operators.Add: nil, "lowerAscii": nil, "upperAscii": nil, "find": nil, "findAll": nil, "strings.quote": nil, "jsonpatch.escapeKey": nil,
	"string": nil, "bytes": nil, "distinct": nil, "sort": nil, "@sortByAssociatedKeys": nil, "reverse": nil, "slice": nil,
}

// bounded returns the program option that enforces the limits.
func bounded(env *cel.Env) cel.ProgramOption {
	// Functions copies the table of all functions, and most expressions call no function in makers.
	declared := sync.OnceValue(env.Functions)
	return cel.CustomDecoratorV2(func(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
		call, ok := i.(interpreter.InterpretableCall)
		if !ok {
			return i, nil
		}
		estimate, makes := makers[call.Function()]
		switch {
		case !makes:
			return i, nil
		case call.Function() == operators.Add:
			return boundedSum(call), nil
		case estimate == nil:
			return &metered{InterpretableCall: call}, nil
		}
		return &metered{
			InterpretableCall: call, args: call.Args(), estimate: estimate,
			op: operation(declared()[call.Function()], call),
		}, nil
	})
}

// boundedSum bounds a call of "+". Sums of numbers and times need no bound. A sum of lists
// refers to its operands and does not copy their elements; each step of the macros map and
// filter makes such a list.
func boundedSum(call interpreter.InterpretableCall) interpreter.InterpretableV2 {
	switch call.OverloadID() {
	case "", standard.AddString, standard.AddBytes, standard.AddList:
		return &metered{InterpretableCall: call, refers: true}
	}
	return call
}

// operation returns the function of a call; nil if it is not known before the call.
func operation(declared *decls.FunctionDecl, call interpreter.InterpretableCall) functions.FunctionOp {
	bindings, err := declared.Bindings()
	if err != nil {
		return nil
	}
	wanted := call.OverloadID()
	if wanted == "" {
		// The types of the arguments are known only at the call.
		wanted = call.Function()
	}
	for _, b := range bindings {
		if b.Operator != wanted {
			continue
		}
		switch n := len(call.Args()); {
		case b.Function != nil:
			return b.Function
		case b.Unary != nil && n == 1:
			return func(values ...ref.Val) ref.Val { return b.Unary(values[0]) }
		case b.Binary != nil && n == 2:
			return func(values ...ref.Val) ref.Val { return b.Binary(values[0], values[1]) }
		}
	}
	return nil
}

// exceed ends an evaluation with the error of an exceeded cost limit.
func exceed() {
	panic(interpreter.EvalCancelledError{Cause: interpreter.CostLimitExceeded, Message: "operation cancelled: actual cost limit exceeded"})
}

// metered is a call that counts the size of its result.
type metered struct {
	interpreter.InterpretableCall
	// refers reports whether the list returned by the call only refers to other lists.
	refers bool
	// op is the function to call with args if estimate allows it; nil to make the call without an
	// estimate.
	op       functions.FunctionOp
	args     []interpreter.InterpretableV2
	estimate func(args []ref.Val) int
}

// call calls op like the interpreter. If there are one or two arguments, it evaluates all, even
// after an error, because this affects the cost. If there are more arguments, it stops at the first
// error.
func (m *metered) call(frame *interpreter.ExecutionFrame) ref.Val {
	var failed ref.Val
	values := make([]ref.Val, len(m.args))
	for i, arg := range m.args {
		values[i] = arg.Exec(frame)
		if failed == nil && types.IsUnknownOrError(values[i]) {
			failed = values[i]
		}
		if failed != nil && len(m.args) > 2 {
			break
		}
	}
	if failed != nil {
		return failed
	}
	if m.estimate(values) > MaxValue {
		exceed()
	}
	return types.LabelErrNode(m.ID(), m.op(values...))
}

// Exec implements interpreter.InterpretableV2.
func (m *metered) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	var value ref.Val
	if m.op == nil {
		value = m.InterpretableCall.Exec(frame)
	} else {
		value = m.call(frame)
	}
	size := sizeOf(value)
	if size <= small {
		return value
	}
	if size > MaxValue {
		exceed()
	}
	if _, list := value.(traits.Lister); list && m.refers {
		return value
	}
	if found, ok := frame.ResolveName(meterName); ok {
		found.(*meter).add(size)
	}
	return value
}

// Eval implements interpreter.Interpretable.
func (m *metered) Eval(vars interpreter.Activation) ref.Val { return m.Exec(interpreter.AsFrame(vars)) }

// sizeOf returns the counted size of a value.
func sizeOf(value ref.Val) int {
	switch v := value.(type) {
	case types.String:
		return len(v)
	case types.Bytes:
		return len(v)
	case types.Int, types.Double, types.Bool:
		return 0
	case traits.Lister:
		if n, ok := v.Size().(types.Int); ok {
			return element * int(n)
		}
	}
	return 0
}

func text(args []ref.Val, i int) string {
	if i >= len(args) {
		return ""
	}
	s, _ := args[i].(types.String)
	return string(s)
}

// times returns the number of matches to which a function applies: found, or less if its optional
// argument i is a lower limit.
func times(found int, args []ref.Val, i int) int {
	if i < len(args) {
		if most, ok := args[i].(types.Int); ok && most >= 0 && int64(most) < int64(found) {
			return int(most)
		}
	}
	return found
}

func sizeOfReplaced(args []ref.Val) int {
	s, old, by := text(args, 0), text(args, 1), text(args, 2)
	if len(by) <= len(old) {
		return len(s)
	}
	n := times(strings.Count(s, old), args, 3)
	if n > MaxValue/(len(by)-len(old)) {
		return math.MaxInt
	}
	return len(s) + n*(len(by)-len(old))
}

func sizeOfSplit(args []ref.Val) int {
	s, by := text(args, 0), text(args, 1)
	if by == "" {
		return element * times(utf8.RuneCountInString(s), args, 2)
	}
	return element * (times(strings.Count(s, by), args, 2) + 1)
}

func sizeOfJoined(args []ref.Val) int {
	list, ok := args[0].(traits.Lister)
	if !ok {
		return 0
	}
	total, by := 0, len(text(args, 1))
	for it := list.Iterator(); it.HasNext() == types.True && total <= MaxValue; {
		s, _ := it.Next().(types.String)
		total += len(s) + by
	}
	return total
}

func sizeOfRange(args []ref.Val) int {
	n, ok := args[0].(types.Int)
	if !ok || n < 0 {
		return 0
	}
	if n > MaxValue/element {
		return math.MaxInt
	}
	return element * int(n)
}

func sizeOfFlat(args []ref.Val) int {
	depth := types.Int(1)
	if len(args) > 1 {
		depth, _ = args[1].(types.Int)
	}
	total := 0
	flat(args[0], depth+1, &total)
	return total
}

// flat adds the number of elements of a list to total, down to a depth, until total is too
// large.
func flat(value ref.Val, depth types.Int, total *int) {
	list, ok := value.(traits.Lister)
	if !ok || depth <= 0 {
		*total += element
		return
	}
	for it := list.Iterator(); it.HasNext() == types.True && *total <= MaxValue; {
		flat(it.Next(), depth-1, total)
	}
}

func sizeOfFormatted(args []ref.Val) int {
	pattern := text(args, 0)
	total := len(pattern)
	for rest := pattern; total <= MaxValue; {
		_, after, found := strings.Cut(rest, "%.")
		if !found {
			break
		}
		digits := len(after) - len(strings.TrimLeft(after, "0123456789"))
		n, err := strconv.Atoi(after[:digits])
		if digits > 0 && (err != nil || n > MaxValue) {
			return math.MaxInt
		}
		total, rest = total+n, after
	}
	if len(args) > 1 {
		printed(args[1], &total)
	}
	return total
}

// printed adds the largest possible length of a value's text to total, until total is too
// large.
func printed(value ref.Val, total *int) {
	// The longest text of a number or of a time is an int in base 2.
	const scalar = 64
	switch v := value.(type) {
	case types.String:
		// The hexadecimal form is twice as long.
		*total += 2 * len(v)
	case types.Bytes:
		*total += 2 * len(v)
	case traits.Mapper:
		for it := v.Iterator(); it.HasNext() == types.True && *total <= MaxValue; {
			k := it.Next()
			printed(k, total)
			printed(v.Get(k), total)
		}
	case traits.Lister:
		*total += element
		for it := v.Iterator(); it.HasNext() == types.True && *total <= MaxValue; {
			printed(it.Next(), total)
		}
	default:
		*total += scalar
	}
}
