package customresources

import (
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured/unstructuredscheme"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/versioning"
)

// creator makes empty custom objects.
var creator = unstructuredscheme.NewUnstructuredCreator()

// typer finds the kind of a custom object in the object itself, and other kinds in a scheme.
func typer(scheme *runtime.Scheme) runtime.ObjectTyper {
	return apiserver.UnstructuredObjectTyper{Delegate: scheme, UnstructuredTyper: unstructuredscheme.NewUnstructuredObjectTyper()}
}

// serializer reads and writes the objects of one CRD on the wire. Protobuf can hold objects of the
// server itself, such as a Status or the metadata of objects, but no custom object.
type serializer struct {
	convertor runtime.ObjectConvertor
	schemas   *schemas
}

// textual are the media types that can hold custom objects.
func textual(media []runtime.SerializerInfo) []runtime.SerializerInfo {
	return slices.DeleteFunc(slices.Clone(media), func(info runtime.SerializerInfo) bool { return info.MediaType == runtime.ContentTypeProtobuf })
}

func (s *serializer) SupportedMediaTypes() []runtime.SerializerInfo {
	return codecs.SupportedMediaTypes()
}

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
		creator, typer(scheme), defaulter{schemas, scheme}, stored, memory, "customResourceStorage")
}
