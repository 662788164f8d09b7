package wire

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// message is a type of k8s.io/apimachinery with its own encoding, such as ObjectMeta.
type message interface {
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// number returns the number of a field; 0 if it is not part of the message.
func number(f reflect.StructField) protowire.Number {
	parts := strings.Split(f.Tag.Get("protobuf"), ",")
	if len(parts) < 2 {
		return 0
	}
	n, err := strconv.ParseInt(parts[1], 10, 32)
	if err != nil {
		panic(fmt.Sprintf("the tag of field %s has no number: %v", f.Name, err))
	}
	return protowire.Number(n)
}

// Marshal encodes a message in protobuf; in is a pointer to it.
func Marshal(in any) ([]byte, error) { return appendMessage(nil, reflect.ValueOf(in).Elem()) }

func appendMessage(b []byte, v reflect.Value) ([]byte, error) {
	var err error
	for i := range v.NumField() {
		if n := number(v.Type().Field(i)); n > 0 {
			if b, err = appendField(b, n, v.Field(i)); err != nil {
				return nil, err
			}
		}
	}
	return b, nil
}

func appendField(b []byte, n protowire.Number, v reflect.Value) ([]byte, error) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return b, nil
		}
		return appendField(b, n, v.Elem())
	case reflect.String:
		return protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), v.String()), nil
	case reflect.Bool:
		if !v.Bool() {
			return b, nil
		}
		return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), 1), nil
	case reflect.Slice:
		if data, ok := v.Interface().([]byte); ok {
			if data == nil {
				return b, nil
			}
			return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), data), nil
		}
		var err error
		for i := range v.Len() {
			if b, err = appendField(b, n, v.Index(i)); err != nil {
				return nil, err
			}
		}
		return b, nil
	case reflect.Struct:
		var content []byte
		var err error
		if m, ok := v.Addr().Interface().(message); ok {
			content, err = m.Marshal()
		} else {
			content, err = appendMessage(nil, v)
		}
		return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), content), err
	}
	panic(fmt.Sprintf("fields of type %s have no form in protobuf", v.Type()))
}

// Unmarshal decodes protobuf data into the message that in points to, without resetting it. Unknown
// fields are ignored. The error names the field.
func Unmarshal(data []byte, in any) error { return parseMessage(data, reflect.ValueOf(in).Elem()) }

func parseMessage(data []byte, v reflect.Value) error {
	return Each(data, func(part Field) error {
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if number(f) != part.Number {
				continue
			}
			if err := parseField(part, v.Field(i)); err != nil {
				return fmt.Errorf("field %s: %w", f.Name, err)
			}
		}
		return nil
	})
}

// Field is a field of a message.
type Field struct {
	Number protowire.Number
	// Value is the content of a string or a message; nil for other types.
	Value []byte
	// All is the whole field, with its number.
	All []byte

	wireType protowire.Type
	content  []byte
}

// Each calls do for the fields of a message, in order.
func Each(message []byte, do func(Field) error) error {
	for len(message) > 0 {
		number, wireType, start := protowire.ConsumeTag(message)
		if start < 0 {
			return protowire.ParseError(start)
		}
		size := protowire.ConsumeFieldValue(number, wireType, message[start:])
		if size < 0 {
			return protowire.ParseError(size)
		}
		f := Field{Number: number, All: message[:start+size], wireType: wireType, content: message[start : start+size]}
		if wireType == protowire.BytesType {
			f.Value, _ = protowire.ConsumeBytes(f.content)
		}
		if err := do(f); err != nil {
			return err
		}
		message = message[start+size:]
	}
	return nil
}

var errWireType = errors.New("it has the wrong wire type")

// parseField decodes the value of a complete field.
func parseField(f Field, v reflect.Value) error {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		return parseField(f, v.Elem())
	case reflect.Bool:
		if f.wireType != protowire.VarintType {
			return errWireType
		}
		value, _ := protowire.ConsumeVarint(f.content)
		v.SetBool(value != 0)
		return nil
	}
	content := f.Value
	if content == nil {
		return errWireType
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(string(content))
		return nil
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			// The decoded object must not share memory with its input.
			v.SetBytes(append([]byte{}, content...))
			return nil
		}
		v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
		return parseField(f, v.Index(v.Len()-1))
	case reflect.Struct:
		if m, ok := v.Addr().Interface().(message); ok {
			return m.Unmarshal(content)
		}
		return parseMessage(content, v)
	}
	panic(fmt.Sprintf("fields of type %s have no form in protobuf", v.Type()))
}
