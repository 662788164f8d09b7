package resources

import (
	"io"
	"net/http"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/gatehouse-dev/gatehouse/initialization"
)

// metadataCodecs encode bare metadata with metadata.initializers.
var metadataCodecs = initialization.NewCodec(scheme.Codecs)

// withMetadata returns the endpoint and the request with which k8s.io/apiserver answers with bare
// metadata that has metadata.initializers (S11.67). k8s.io/apiserver always encodes bare metadata
// with codecs of its own, which drop the field. Here the request therefore asks for whole objects,
// and the encoder makes metadata of them. Other requests are returned unchanged.
func withMetadata(e *Endpoint, info *request.RequestInfo, req *http.Request) (*Endpoint, *http.Request) {
	kind := "PartialObjectMetadata"
	switch info.Verb {
	case "list", "watch":
		if !initialization.Includes(req) {
			return e, req
		}
		if info.Verb == "list" {
			kind += "List"
		}
	case "get", "create", "update":
		// A patch needs the codecs of whole objects.
	default:
		return e, req
	}
	if info.Subresource != "" || !transforms(req) {
		return e, req
	}
	accepted, _, err := negotiation.NegotiateOutputMediaType(req, e.Scope.Serializer, e.Scope)
	if err != nil || accepted.Convert == nil || accepted.Convert.Kind != kind {
		return e, req
	}
	target := accepted.Convert.GroupVersion()
	if target != metav1.SchemeGroupVersion && target != metav1beta1.SchemeGroupVersion {
		return e, req
	}
	whole := req.Clone(req.Context())
	whole.Header.Set("Accept", accepted.Accepted.MediaType)
	if accepted.Pretty {
		whole.Header.Set("Accept", accepted.Accepted.MediaType+";pretty=1")
	}
	scope := *e.Scope
	scope.Serializer = newMetadataCodec(e.Scope.Serializer, target)
	// Custom resources are served in protobuf as bare metadata only.
	scope.StandardSerializers = nil
	endpoint := *e
	endpoint.Scope = &scope
	return &endpoint, whole
}

// metadataCodec is a codec of whole objects that encodes their metadata only.
type metadataCodec struct {
	runtime.NegotiatedSerializer
	target schema.GroupVersion
	// serializers maps a serializer of whole objects to a serializer of metadataCodecs.
	serializers map[runtime.Encoder]runtime.Encoder
}

func newMetadataCodec(objects runtime.NegotiatedSerializer, target schema.GroupVersion) *metadataCodec {
	c := &metadataCodec{NegotiatedSerializer: objects, target: target, serializers: map[runtime.Encoder]runtime.Encoder{}}
	for _, of := range objects.SupportedMediaTypes() {
		to, ok := runtime.SerializerInfoForMediaType(metadataCodecs.SupportedMediaTypes(), of.MediaType)
		if !ok {
			continue
		}
		c.serializers[of.Serializer] = to.Serializer
		if of.PrettySerializer != nil && to.PrettySerializer != nil {
			c.serializers[of.PrettySerializer] = to.PrettySerializer
		}
	}
	return c
}

// EncoderForVersion implements runtime.NegotiatedSerializer.
func (c *metadataCodec) EncoderForVersion(e runtime.Encoder, gv runtime.GroupVersioner) runtime.Encoder {
	objects := c.NegotiatedSerializer.EncoderForVersion(e, gv)
	serializer, ok := c.serializers[e]
	if !ok {
		return objects
	}
	return &metadataEncoder{other: objects, metadata: metadataCodecs.EncoderForVersion(serializer, c.target), target: c.target}
}

type metadataEncoder struct {
	// other encodes a Status.
	other, metadata runtime.Encoder
	target          schema.GroupVersion
}

// Identifier implements runtime.Encoder.
func (e *metadataEncoder) Identifier() runtime.Identifier {
	return "metadata(" + e.metadata.Identifier() + "," + runtime.Identifier(e.target.String()) + ")"
}

// Encode implements runtime.Encoder.
func (e *metadataEncoder) Encode(obj runtime.Object, w io.Writer) error {
	if shared, ok := obj.(runtime.CacheableObject); ok {
		return shared.CacheEncode(e.Identifier(), e.encode, w)
	}
	return e.encode(obj, w)
}

func (e *metadataEncoder) encode(obj runtime.Object, w io.Writer) error {
	switch obj.(type) {
	case *metav1.Status, *metav1.WatchEvent:
		return e.other.Encode(obj, w)
	}
	// An Unstructured has the methods of a list, too.
	list, ok := obj.(metav1.ListInterface)
	if !ok || !meta.IsListType(obj) {
		partial, err := e.partial(obj)
		if err != nil {
			return err
		}
		return e.metadata.Encode(partial, w)
	}
	partials := metav1.PartialObjectMetadataList{}
	partials.ResourceVersion, partials.Continue, partials.RemainingItemCount = list.GetResourceVersion(), list.GetContinue(), list.GetRemainingItemCount()
	if err := meta.EachListItem(obj, func(item runtime.Object) error {
		partial, err := e.partial(item)
		if err == nil {
			partials.Items = append(partials.Items, *partial)
		}
		return err
	}); err != nil {
		return err
	}
	if e.target == metav1beta1.SchemeGroupVersion {
		return e.metadata.Encode(&metav1beta1.PartialObjectMetadataList{ListMeta: partials.ListMeta, Items: partials.Items}, w)
	}
	return e.metadata.Encode(&partials, w)
}

func (e *metadataEncoder) partial(obj runtime.Object) (*metav1.PartialObjectMetadata, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	partial := meta.AsPartialObjectMetadata(m)
	partial.SetGroupVersionKind(e.target.WithKind("PartialObjectMetadata"))
	return partial, nil
}
