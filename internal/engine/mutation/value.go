package mutation

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strconv"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"google.golang.org/protobuf/types/known/structpb"
	"k8s.io/apiserver/pkg/cel/mutation/dynamic"
	kjson "sigs.k8s.io/json"
)

// maxSafe is the largest integer that every reader of JSON represents exactly.
const maxSafe = 1<<53 - 1

// valueOf converts the value of an operation to decoded JSON: integers as int64. An integer beyond
// maxSafe becomes a string (S18.21).
func valueOf(v ref.Val) (any, error) {
	switch v := v.(type) {
	case types.String:
		return string(v), nil
	case types.Bool:
		return bool(v), nil
	case types.Null:
		return nil, nil
	case types.Int:
		if v >= -maxSafe && v <= maxSafe {
			return int64(v), nil
		}
	case *dynamic.ObjectVal:
		if err := checkNames(v); err != nil {
			return nil, err
		}
	}
	// CEL converts values to JSON through structpb.Value.
	message, err := v.ConvertToNative(reflect.TypeFor[*structpb.Value]())
	var data []byte
	if err == nil {
		data, err = json.Marshal(message)
	}
	if err != nil {
		return nil, fmt.Errorf("JSONPath valueExpression evaluated to a type that could not marshal to JSON: %w", err)
	}
	var out any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &out); err != nil {
		return nil, fmt.Errorf("JSONPath valueExpression evaluated to a type that could not marshal to JSON: %w", err)
	}
	return out, nil
}

// writable reports whether a pointer can be part of a patch. k8s.io/apiserver formats pointers in
// Go syntax, which is not JSON if there are control characters.
func writable(pointer string) bool {
	for i := 0; i < len(pointer); i++ {
		if c := pointer[i]; c < ' ' || c > '~' || c == '\\' || c == '"' {
			return json.Valid([]byte(strconv.Quote(pointer)))
		}
	}
	return true
}

// checkNumbers rejects numbers that JSON cannot represent, such as 1.0 / 0.0.
func checkNumbers(v any) error {
	switch v := v.(type) {
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("%v is not a number in JSON", v)
		}
	case map[string]any:
		for k, e := range v {
			if err := checkNumbers(e); err != nil {
				return fmt.Errorf("%s: %w", k, err)
			}
		}
	case []any:
		for _, e := range v {
			if err := checkNumbers(e); err != nil {
				return err
			}
		}
	}
	return nil
}
