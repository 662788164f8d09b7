package review

import (
	"bytes"
	"encoding/json"
	"io"
	"net"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Body is an encoded AdmissionReview without its uid. It refers to the bytes of its Payload without
// copying them. A Body is immutable and safe for concurrent use.
type Body struct {
	version Version
	// segments are written one after the other, with the uid after the first one; v1alpha1 has no
	// uid.
	segments [8][]byte
	length   int64
}

var (
	null       = []byte("null")
	openV1     = []byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":`)
	openBeta   = []byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1beta1","request":{"uid":`)
	openAlpha  = []byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1alpha1","spec":{`)
	oldObject  = []byte(`,"oldObject":`)
	optionsDry = []byte(`,"dryRun":true,"options":`)
	optionsWet = []byte(`,"dryRun":false,"options":`)
	closeV1    = []byte(`}}`)
	closeAlpha = []byte(`},"status":{"allowed":false}}`)
)

// facts are the members of a review between its uid and its objects. The fields have the order of
// k8s.io/api/admission; readers do not depend on it.
type facts struct {
	Kind               metav1.GroupVersionKind      `json:"kind"`
	Resource           metav1.GroupVersionResource  `json:"resource"`
	Subresource        string                       `json:"subResource,omitempty"`
	RequestKind        *metav1.GroupVersionKind     `json:"requestKind,omitempty"`
	RequestResource    *metav1.GroupVersionResource `json:"requestResource,omitempty"`
	RequestSubresource string                       `json:"requestSubResource,omitempty"`
	Name               string                       `json:"name,omitempty"`
	Namespace          string                       `json:"namespace,omitempty"`
	Operation          string                       `json:"operation"`
	UserInfo           authenticationv1.UserInfo    `json:"userInfo"`
}

// NewBody encodes a review in version v, which must be one of the constants. The payload's bytes
// must be valid JSON and are used unchanged; a nil payload means no objects. The table of S3.7
// defines the members and their presence, and S12.1 and S12.2 define them for v1alpha1.
func NewBody(v Version, r *Header, p *Payload) *Body {
	if p == nil {
		p = &Payload{}
	}
	b := &Body{version: v}
	f := facts{
		Kind:        metav1.GroupVersionKind(r.Kind),
		Resource:    metav1.GroupVersionResource(r.Resource),
		Subresource: r.Subresource,
		Name:        r.Name,
		Namespace:   r.Namespace,
		Operation:   r.Operation,
		UserInfo:    userInfo(r.User),
	}
	switch v {
	case V1alpha1:
		b.segments = [8][]byte{
			openAlpha, encodeFacts(&f, ""), orNull(p.Object), oldObject, orNull(p.OldObject), closeAlpha,
		}
	case V1, V1beta1:
		kind, resource := metav1.GroupVersionKind(r.RequestKind), metav1.GroupVersionResource(r.RequestResource)
		f.RequestKind, f.RequestResource, f.RequestSubresource = &kind, &resource, r.RequestSubresource
		open, options := openV1, optionsWet
		if v == V1beta1 {
			open = openBeta
		}
		if r.DryRun {
			options = optionsDry
		}
		b.segments = [8][]byte{
			open, encodeFacts(&f, ","), orNull(p.Object), oldObject, orNull(p.OldObject), options, orNull(p.Options), closeV1,
		}
	default:
		panic("review: NewBody with unknown version " + string(v))
	}
	for _, s := range b.segments {
		b.length += int64(len(s))
	}
	return b
}

// encodeFacts returns the members of f between prefix and the name of the next object member.
func encodeFacts(f *facts, prefix string) []byte {
	members, err := json.Marshal(f)
	if err != nil {
		panic("review: a struct of strings does not encode: " + err.Error())
	}
	const object = `,"object":`
	out := make([]byte, 0, len(prefix)+len(members)-2+len(object))
	out = append(out, prefix...)
	out = append(out, members[1:len(members)-1]...)
	return append(out, object...)
}

func userInfo(u user.Info) authenticationv1.UserInfo {
	if u == nil {
		return authenticationv1.UserInfo{}
	}
	out := authenticationv1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups()}
	if extra := u.GetExtra(); len(extra) > 0 {
		out.Extra = make(map[string]authenticationv1.ExtraValue, len(extra))
		for k, v := range extra {
			out.Extra[k] = v
		}
	}
	return out
}

func orNull(raw []byte) []byte {
	if len(raw) == 0 {
		return null
	}
	return raw
}

// Version returns the version of the review.
func (b *Body) Version() Version { return b.version }

// Len returns the length of the review in bytes, without its uid.
func (b *Body) Len() int64 { return b.length }

// parts returns the parts of the review with a uid, in order, and their length. A v1alpha1 review
// has no uid.
func (b *Body) parts(uid types.UID) (list net.Buffers, length int64) {
	list, length = make(net.Buffers, 0, len(b.segments)+1), b.length
	list = append(list, b.segments[0])
	if b.version != V1alpha1 {
		quoted := quote(string(uid))
		list, length = append(list, quoted), length+int64(len(quoted))
	}
	return append(list, b.segments[1:]...), length
}

// Bytes returns the whole review with a uid in a new slice.
func (b *Body) Bytes(uid types.UID) []byte {
	list, _ := b.parts(uid)
	return bytes.Join(list, nil)
}

// Reader returns a reader of the review with a uid, which never fails, and the length of the review
// in bytes. The reader copies nothing before it is read, and is for one goroutine; several readers
// of one Body may be used concurrently.
func (b *Body) Reader(uid types.UID) (io.ReadCloser, int64) {
	list, length := b.parts(uid)
	return io.NopCloser(&list), length
}

// quote returns s as a JSON string.
func quote(s string) []byte {
	if Plain(s) {
		return []byte(`"` + s + `"`)
	}
	q, err := json.Marshal(s)
	if err != nil {
		panic("review: a string does not encode: " + err.Error())
	}
	return q
}
