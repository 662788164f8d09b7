package initializers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/internal/engine/wire"
)

// In protobuf metadata.initializers is field 16 of ObjectMeta, as in Kubernetes 1.7 to 1.13.
// Current generated code ignores that number, so this file moves the field between the annotation
// and the bytes, after encoding and after decoding.
//
// All kinds and all lists begin with the same fields. An object is wrapped in a runtime.Unknown
// after four magic bytes; in a stream it may lack this wrapper.
const (
	unknownRaw       protowire.Number = 2
	objectMetadata   protowire.Number = 1
	listItems        protowire.Number = 2
	metaAnnotations  protowire.Number = 12
	metaInitializers protowire.Number = 16
	entryKey         protowire.Number = 1
	entryValue       protowire.Number = 2
)

var protobufPrefix = []byte("k8s\x00")

// ExposeProtobuf is Expose for an object or a list in protobuf. The result is a copy. It is an
// error if data is neither.
func ExposeProtobuf(data []byte, isList bool) ([]byte, error) {
	expose := exposeIn
	if isList {
		expose = func(list []byte) ([]byte, error) { return rewrite(list, listItems, exposeIn) }
	}
	body, enveloped := bytes.CutPrefix(data, protobufPrefix)
	if !enveloped {
		return expose(data)
	}
	body, err := rewrite(body, unknownRaw, expose)
	return slices.Concat(protobufPrefix, body), err
}

func exposeIn(object []byte) ([]byte, error) { return rewrite(object, objectMetadata, exposeInMeta) }

// rewrite returns a message with a changed field, at each occurrence.
func rewrite(message []byte, number protowire.Number, change func([]byte) ([]byte, error)) ([]byte, error) {
	out := make([]byte, 0, len(message))
	err := wire.Each(message, func(f wire.Field) error {
		if f.Number != number || f.Value == nil {
			out = append(out, f.All...)
			return nil
		}
		changed, err := change(f.Value)
		if err != nil {
			return err
		}
		out = protowire.AppendTag(out, number, protowire.BytesType)
		out = protowire.AppendBytes(out, changed)
		return nil
	})
	return out, err
}

// exposeInMeta moves the field from the annotation to metadata.initializers.
func exposeInMeta(metadata []byte) ([]byte, error) {
	if !bytes.Contains(metadata, []byte(Annotation)) {
		return metadata, nil
	}
	out := make([]byte, 0, len(metadata))
	var carried []byte
	err := wire.Each(metadata, func(f wire.Field) error {
		if f.Number == metaAnnotations {
			if key, err := lastField(f.Value, entryKey); err != nil {
				return err
			} else if string(key) == Annotation {
				carried, err = lastField(f.Value, entryValue)
				return err
			}
		}
		out = append(out, f.All...)
		return nil
	})
	if err != nil || carried == nil {
		return out, err
	}
	var field Initializers
	if err := json.Unmarshal(carried, &field); err != nil {
		return nil, fmt.Errorf("metadata.initializers: %w", err)
	}
	message, err := wire.Marshal(&field)
	if err != nil {
		return nil, err
	}
	out = protowire.AppendTag(out, metaInitializers, protowire.BytesType)
	return protowire.AppendBytes(out, message), nil
}

// HideProtobuf sets the field of obj to its value in data, the protobuf from which obj was decoded.
// It ignores an object without metadata. It is an error if the field cannot be parsed.
func HideProtobuf(data []byte, obj runtime.Object) error {
	if _, ok := obj.(metav1.Object); !ok {
		return nil
	}
	object, enveloped := bytes.CutPrefix(data, protobufPrefix)
	if enveloped {
		var err error
		if object, err = lastField(object, unknownRaw); err != nil {
			return err
		}
	}
	var field *Initializers
	err := wire.Each(object, func(f wire.Field) error {
		if f.Number != objectMetadata {
			return nil
		}
		return wire.Each(f.Value, func(f wire.Field) error {
			if f.Number != metaInitializers {
				return nil
			}
			if field == nil {
				field = &Initializers{}
			}
			value, err := content(f)
			if err != nil {
				return err
			}
			return wire.Unmarshal(value, field)
		})
	})
	if err != nil {
		return fmt.Errorf("metadata.initializers: %w", err)
	}
	if field != nil {
		Set(obj, field)
	}
	return nil
}

// content returns the content of a field that must be a string or a message.
func content(f wire.Field) ([]byte, error) {
	if f.Value == nil {
		return nil, errors.New("a field has the wrong wire type")
	}
	return f.Value, nil
}

// lastField returns the last value of a field, which counts if the field occurs several times; nil
// if it does not occur.
func lastField(message []byte, number protowire.Number) (value []byte, err error) {
	err = wire.Each(message, func(f wire.Field) error {
		if f.Number == number {
			value, err = content(f)
			return err
		}
		return nil
	})
	return value, err
}
