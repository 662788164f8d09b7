package wire

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// message is a type of the library that writes and reads itself, such as ObjectMeta.
type message interface {
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// number returns the number of a field, 0 if it is not part of the message.
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

// Marshal returns a message in protobuf; in points to it.
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

// Unmarshal adds the fields in data, which is protobuf, to the message that in points to. Fields that it
// does not have are ignored. The error names the field.
func Unmarshal(data []byte, in any) error { return parseMessage(data, reflect.ValueOf(in).Elem()) }

func parseMessage(data []byte, v reflect.Value) error {
	for len(data) > 0 {
		n, wireType, start := protowire.ConsumeTag(data)
		if start < 0 {
			return protowire.ParseError(start)
		}
		size := protowire.ConsumeFieldValue(n, wireType, data[start:])
		if size < 0 {
			return protowire.ParseError(size)
		}
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if number(f) != n {
				continue
			}
			if err := parseField(wireType, data[start:start+size], v.Field(i)); err != nil {
				return fmt.Errorf("field %s: %w", f.Name, err)
			}
		}
		data = data[start+size:]
	}
	return nil
}

var errWireType = errors.New("it has the wrong wire type")

// parseField reads the value of a field. data is known to be complete.
func parseField(wireType protowire.Type, data []byte, v reflect.Value) error {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		return parseField(wireType, data, v.Elem())
	case reflect.Bool:
		if wireType != protowire.VarintType {
			return errWireType
		}
		value, _ := protowire.ConsumeVarint(data)
		v.SetBool(value != 0)
		return nil
	}
	if wireType != protowire.BytesType {
		return errWireType
	}
	content, _ := protowire.ConsumeBytes(data)
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
		return parseField(wireType, data, v.Index(v.Len()-1))
	case reflect.Struct:
		if m, ok := v.Addr().Interface().(message); ok {
			return m.Unmarshal(content)
		}
		return parseMessage(content, v)
	}
	panic(fmt.Sprintf("fields of type %s have no form in protobuf", v.Type()))
}
