package customresources

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/runtime/serializer/versioning"
)

// creator makes empty custom objects.
type creator struct{}

func (creator) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	return u, nil
}

// typer finds the kind of a custom object in the object itself, and the kinds of parameters of
// requests in scheme.
type typer struct{ scheme *runtime.Scheme }

func (t typer) ObjectKinds(obj runtime.Object) ([]schema.GroupVersionKind, bool, error) {
	if _, ok := obj.(runtime.Unstructured); !ok {
		return t.scheme.ObjectKinds(obj)
	}
	gvk := obj.GetObjectKind().GroupVersionKind()
	switch {
	case gvk.Kind == "":
		return nil, false, runtime.NewMissingKindErr("object has no kind field ")
	case gvk.Version == "":
		return nil, false, runtime.NewMissingVersionErr("object has no apiVersion field")
	}
	return []schema.GroupVersionKind{gvk}, false, nil
}

func (t typer) Recognizes(gvk schema.GroupVersionKind) bool { return t.scheme.Recognizes(gvk) }

// serializer reads and writes the objects of one definition on the wire.
type serializer struct {
	media     []runtime.SerializerInfo
	convertor runtime.ObjectConvertor
	schemas   *schemas
}

func newSerializer(t typer, convertor runtime.ObjectConvertor, schemas *schemas) *serializer {
	text := func(o json.SerializerOptions) *json.Serializer {
		return json.NewSerializerWithOptions(json.DefaultMetaFactory, creator{}, t, o)
	}
	return &serializer{
		convertor: convertor,
		schemas:   schemas,
		media: []runtime.SerializerInfo{
			{
				MediaType: runtime.ContentTypeJSON, MediaTypeType: "application", MediaTypeSubType: "json",
				EncodesAsText:    true,
				Serializer:       text(json.SerializerOptions{StreamingCollectionsEncoding: true}),
				PrettySerializer: text(json.SerializerOptions{Pretty: true}),
				StrictSerializer: text(json.SerializerOptions{Strict: true, StreamingCollectionsEncoding: true}),
				StreamSerializer: &runtime.StreamSerializerInfo{
					EncodesAsText: true, Serializer: text(json.SerializerOptions{}), Framer: json.Framer,
				},
			},
			{
				MediaType: runtime.ContentTypeYAML, MediaTypeType: "application", MediaTypeSubType: "yaml",
				EncodesAsText:    true,
				Serializer:       text(json.SerializerOptions{Yaml: true}),
				StrictSerializer: text(json.SerializerOptions{Yaml: true, Strict: true}),
			},
			// Protobuf can hold objects of the server itself, such as a Status or the metadata of
			// objects, but no custom object.
			{
				MediaType: runtime.ContentTypeProtobuf, MediaTypeType: "application", MediaTypeSubType: "vnd.kubernetes.protobuf",
				Serializer: protobuf.NewSerializerWithOptions(creator{}, t, protobuf.SerializerOptions{StreamingCollectionsEncoding: true}),
				StreamSerializer: &runtime.StreamSerializerInfo{
					Serializer: protobuf.NewRawSerializer(creator{}, t), Framer: protobuf.LengthDelimitedFramer,
				},
			},
		},
	}
}

// textual are the media types that can hold custom objects.
func textual(media []runtime.SerializerInfo) []runtime.SerializerInfo {
	var out []runtime.SerializerInfo
	for _, info := range media {
		if info.MediaType != runtime.ContentTypeProtobuf {
			out = append(out, info)
		}
	}
	return out
}

func (s *serializer) SupportedMediaTypes() []runtime.SerializerInfo { return s.media }

func (s *serializer) EncoderForVersion(e runtime.Encoder, gv runtime.GroupVersioner) runtime.Encoder {
	return versioning.NewCodec(e, nil, sparing{s.convertor}, scheme, scheme, scheme, gv, nil, "customResourceEncoder")
}

func (s *serializer) DecoderToVersion(d runtime.Decoder, gv runtime.GroupVersioner) runtime.Decoder {
	how := coercion{}
	if j, ok := d.(*json.Serializer); ok {
		how.unknown = j.IsStrict()
	}
	coercing := coercingDecoder{Decoder: d, schemas: s.schemas, how: how}
	return versioning.NewCodec(nil, coercing, runtime.UnsafeObjectConvertor(scheme), scheme, scheme,
		defaulter{s.schemas, scheme}, nil, gv, "customResourceDecoder")
}

// sparing is a convertor for encoders, which only read: it does not copy an object that
// is already in the wanted version. A store returns a list of objects in one version, which
// would otherwise be copied whole for every response.
type sparing struct{ runtime.ObjectConvertor }

func (s sparing) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	list, ok := in.(*unstructured.UnstructuredList)
	if !ok {
		return s.ObjectConvertor.ConvertToVersion(in, target)
	}
	gvk := list.GroupVersionKind()
	to, ok := target.KindForGroupVersionKinds([]schema.GroupVersionKind{gvk})
	if !ok || to != gvk {
		return s.ObjectConvertor.ConvertToVersion(in, target)
	}
	apiVersion := gvk.GroupVersion().String()
	for i := range list.Items {
		if list.Items[i].GetAPIVersion() != apiVersion {
			return s.ObjectConvertor.ConvertToVersion(in, target)
		}
	}
	return in, nil
}

// storageCodec writes objects to etcd in one version and reads them in another.
func storageCodec(convertor runtime.ObjectConvertor, schemas *schemas, stored, memory schema.GroupVersion) runtime.Codec {
	base := unstructured.UnstructuredJSONScheme
	return versioning.NewCodec(base,
		coercingDecoder{Decoder: base, schemas: schemas, how: coercion{fromStorage: true}},
		coercingConvertor{ObjectConvertor: convertor, schemas: schemas},
		creator{}, typer{scheme}, defaulter{schemas, scheme}, stored, memory, "customResourceStorage")
}
