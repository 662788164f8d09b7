package initialization

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
)

// Codecs returns a factory of codecs for the kinds of a scheme. Its encoders write lists item by
// item, as in kube-apiserver, instead of encoding the whole list first.
func Codecs(scheme *runtime.Scheme) serializer.CodecFactory {
	return serializer.NewCodecFactory(scheme, serializer.WithStreamingCollectionEncodingToJSON(), serializer.WithStreamingCollectionEncodingToProtobuf())
}

// NewCodec wraps a negotiated serializer so that metadata.initializers survives
// encoding and decoding in JSON, YAML and protobuf. Other encodings cannot express the field, and
// leave it out.
//
// Objects without the field pass straight through; these are nearly all objects.
func NewCodec(base runtime.NegotiatedSerializer) runtime.NegotiatedSerializer {
	return newCodec(base, nil)
}

// NewStoredCodec is NewCodec for kinds whose objects are shown as they are stored: objects with
// the same UID and resource version are equal. It keeps the encoded objects of lists for some
// seconds, 32 MiB at most.
func NewStoredCodec(base runtime.NegotiatedSerializer) runtime.NegotiatedSerializer {
	return newCodec(base, &kept{})
}

func newCodec(base runtime.NegotiatedSerializer, k *kept) runtime.NegotiatedSerializer {
	c := &codec{NegotiatedSerializer: base, forms: map[any]form{}, kept: k}
	for _, info := range base.SupportedMediaTypes() {
		f := form{
			text:     info.EncodesAsText,
			yaml:     info.MediaType == runtime.ContentTypeYAML,
			protobuf: info.MediaType == runtime.ContentTypeProtobuf,
		}
		c.forms[info.Serializer] = f
		if info.StreamSerializer != nil {
			c.forms[info.StreamSerializer.Serializer] = f
		}
		if info.PrettySerializer != nil {
			pretty := f
			pretty.pretty = true
			c.forms[info.PrettySerializer] = pretty
		}
		if info.StrictSerializer != nil {
			strict := f
			strict.strict = true
			c.forms[info.StrictSerializer] = strict
		}
	}
	return c
}

type codec struct {
	runtime.NegotiatedSerializer
	forms map[any]form
	kept  *kept
}

// form is the encoding that a serializer of the base reads and writes.
type form struct {
	text     bool
	yaml     bool
	protobuf bool
	pretty   bool
	strict   bool
}

// itemByItem reports whether lists are written item by item in the form.
func (f form) itemByItem() bool { return !f.yaml && !f.pretty && (f.text || f.protobuf) }

// EncoderForVersion implements runtime.NegotiatedSerializer. The serializer below the conversion
// to the version shows the field, since it gets objects as clients see them.
func (c *codec) EncoderForVersion(e runtime.Encoder, gv runtime.GroupVersioner) runtime.Encoder {
	f := c.forms[e]
	inner := c.NegotiatedSerializer.EncoderForVersion(&encoder{inner: e, form: f}, gv)
	if !f.itemByItem() {
		return inner
	}
	return &listEncoder{Encoder: inner, form: f, kept: c.kept, version: gv.Identifier()}
}

func (c *codec) DecoderToVersion(d runtime.Decoder, gv runtime.GroupVersioner) runtime.Decoder {
	return &decoder{inner: c.NegotiatedSerializer.DecoderToVersion(d, gv), form: c.forms[d]}
}

type encoder struct {
	inner runtime.Encoder
	form  form
}

func (e *encoder) Identifier() runtime.Identifier {
	return "initializers(" + e.inner.Identifier() + ")"
}

var _ runtime.EncoderWithAllocator = &encoder{}

func (e *encoder) Encode(obj runtime.Object, w io.Writer) error {
	return e.EncodeWithAllocator(obj, w, nil)
}

// EncodeWithAllocator implements runtime.EncoderWithAllocator. With it, protobuf reuses memory
// for large objects and watches.
func (e *encoder) EncodeWithAllocator(obj runtime.Object, w io.Writer, memory runtime.MemoryAllocator) error {
	if co, ok := obj.(runtime.CacheableObject); ok {
		return co.CacheEncode(e.Identifier(), func(obj runtime.Object, w io.Writer) error { return e.encode(obj, w, memory) }, w)
	}
	return e.encode(obj, w, memory)
}

func (e *encoder) encode(obj runtime.Object, w io.Writer, memory runtime.MemoryAllocator) error {
	if c, ok := w.(*converted); ok {
		return c.take(obj, e.inner)
	}
	plain := !Carries(obj)
	if list, ok := obj.(*unstructured.UnstructuredList); ok && !plain && e.form.text {
		shown, err := exposeList(list)
		if err != nil {
			return err
		}
		obj, plain = shown, true
	}
	if plain {
		if inner, ok := e.inner.(runtime.EncoderWithAllocator); ok && memory != nil {
			return inner.EncodeWithAllocator(obj, w, memory)
		}
		return e.inner.Encode(obj, w)
	}
	if e.form.protobuf {
		var buf bytes.Buffer
		if err := e.inner.Encode(obj, &buf); err != nil {
			return err
		}
		data, err := initializers.ExposeProtobuf(buf.Bytes(), meta.IsListType(obj))
		if err != nil {
			return fmt.Errorf("encoding metadata.initializers: %w", err)
		}
		_, err = w.Write(data)
		return err
	}
	if !e.form.text {
		stripped := obj.DeepCopyObject()
		Strip(stripped)
		return e.inner.Encode(stripped, w)
	}
	var buf bytes.Buffer
	if err := e.inner.Encode(obj, &buf); err != nil {
		return err
	}
	data := buf.Bytes()
	if e.form.yaml {
		var err error
		if data, err = yaml.YAMLToJSON(data); err != nil {
			return fmt.Errorf("encoding metadata.initializers: %w", err)
		}
	}
	var content map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &content); err != nil {
		return fmt.Errorf("encoding metadata.initializers: %w", err)
	}
	if err := expose(content); err != nil {
		return err
	}
	var err error
	switch {
	case e.form.yaml:
		data, err = yaml.Marshal(content)
	case e.form.pretty:
		data, err = json.MarshalIndent(content, "", "  ")
	default:
		if data, err = json.Marshal(content); err == nil {
			data = append(data, '\n')
		}
	}
	if err != nil {
		return fmt.Errorf("encoding metadata.initializers: %w", err)
	}
	_, err = w.Write(data)
	return err
}

// exposeList returns a copy of a list of custom resources in which the objects that carry the
// field show it. The other objects are shared with the list.
func exposeList(list *unstructured.UnstructuredList) (*unstructured.UnstructuredList, error) {
	shown := &unstructured.UnstructuredList{Object: list.Object, Items: slices.Clone(list.Items)}
	for i := range shown.Items {
		if initializers.Has(&shown.Items[i]) {
			shown.Items[i] = *shown.Items[i].DeepCopy()
			if err := initializers.Expose(shown.Items[i].Object); err != nil {
				return nil, err
			}
		}
	}
	return shown, nil
}

// Carries reports whether any object in obj, a list or table included, carries
// the field in its annotation.
func Carries(obj runtime.Object) bool {
	switch t := obj.(type) {
	case *metav1.Status, *metav1.WatchEvent:
		return false
	case *metav1.Table:
		for i := range t.Rows {
			if row := t.Rows[i].Object.Object; row != nil && initializers.Has(row) {
				return true
			}
		}
		return false
	}
	if initializers.Has(obj) {
		return true
	}
	if !meta.IsListType(obj) {
		return false
	}
	found := false
	// The error is the one returned below, to stop at the first.
	_ = meta.EachListItem(obj, func(item runtime.Object) error {
		if initializers.Has(item) {
			found = true
			return io.EOF
		}
		return nil
	})
	return found
}

// Strip removes the field from every object in obj. It changes obj.
func Strip(obj runtime.Object) {
	switch t := obj.(type) {
	case *metav1.Table:
		for i := range t.Rows {
			if row := t.Rows[i].Object.Object; row != nil {
				Strip(row)
			}
		}
		return
	case metav1.Object:
		initializers.Set(obj, nil)
		return
	}
	if meta.IsListType(obj) {
		_ = meta.EachListItem(obj, func(item runtime.Object) error {
			Strip(item)
			return nil
		})
	}
}

// expose shows the field in an encoded object, list or table.
func expose(content map[string]any) error {
	if err := initializers.Expose(content); err != nil {
		return err
	}
	items, _ := content["items"].([]any)
	for _, item := range items {
		if m, ok := item.(map[string]any); ok {
			if err := initializers.Expose(m); err != nil {
				return err
			}
		}
	}
	rows, _ := content["rows"].([]any)
	for _, row := range rows {
		r, _ := row.(map[string]any)
		if m, ok := r["object"].(map[string]any); ok {
			if err := initializers.Expose(m); err != nil {
				return err
			}
		}
	}
	return nil
}

type decoder struct {
	inner runtime.Decoder
	form  form
}

var fieldName = []byte("initializers")

func (d *decoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if !d.form.text || !bytes.Contains(data, fieldName) {
		obj, gvk, err := d.inner.Decode(data, defaults, into)
		if err == nil && initializers.Has(obj) {
			return nil, gvk, fmt.Errorf("metadata.annotations[%s] is reserved: write metadata.initializers instead", initializers.Annotation)
		}
		if err == nil && d.form.protobuf {
			if err = initializers.HideProtobuf(data, obj); err != nil {
				return nil, gvk, err
			}
		}
		return obj, gvk, err
	}
	return d.rewrite(data, defaults, into)
}

func (d *decoder) rewrite(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	var strict []error
	plain := data
	if d.form.yaml {
		var err error
		if plain, err = yaml.YAMLToJSON(data); err != nil {
			return d.inner.Decode(data, defaults, into)
		}
		if d.form.strict {
			if _, err := yaml.YAMLToJSONStrict(data); err != nil {
				strict = append(strict, err)
			}
		}
	}
	var content map[string]any
	duplicates, err := kjson.UnmarshalStrict(plain, &content)
	if err != nil {
		// The data is not an object, or not JSON: the inner decoder returns the error.
		return d.inner.Decode(data, defaults, into)
	}
	if d.form.strict {
		strict = append(strict, duplicates...)
	}
	unknown, err := initializers.Hide(content)
	if err != nil {
		return nil, defaults, err
	}
	if d.form.strict {
		for _, u := range unknown {
			strict = append(strict, errors.New("metadata.initializers: "+u))
		}
	}
	plain, err = json.Marshal(content)
	if err != nil {
		return nil, nil, err
	}
	obj, gvk, err := d.inner.Decode(plain, defaults, into)
	if len(strict) == 0 {
		return obj, gvk, err
	}
	if err != nil {
		inner, ok := runtime.AsStrictDecodingError(err)
		if !ok {
			return obj, gvk, err
		}
		strict = append(strict, inner.Errors()...)
	}
	return obj, gvk, runtime.NewStrictDecodingError(strict)
}
