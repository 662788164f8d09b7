package review

import (
	"encoding/json"
	"io"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Body is an encoded AdmissionReview that lacks only its uid. It refers to the
// bytes of the Payload it was made from and copies none of them. A Body is
// immutable and safe for concurrent use.
type Body struct {
	version Version
	// segments are written one after the other, the uid after the first one;
	// v1alpha1 has no uid.
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

// facts are the members of a review that stand between its uid and its objects.
// Field order is that of k8s.io/api/admission; readers do not depend on it.
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

// NewBody encodes a review in version v, which must be one of the constants.
// The payload's bytes are used as they are and must be valid JSON; a nil payload
// means no objects. Members and their presence follow the table of S3.7, and
// S12.1 and S12.2 for v1alpha1.
func NewBody(v Version, r *Request, p *Payload) *Body {
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

// encodeFacts returns the members of f between prefix and the name of the object
// member that follows them.
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

// Version returns the version the body is encoded in.
func (b *Body) Version() Version { return b.version }

// Len returns how long the review is, in bytes, without its uid.
func (b *Body) Len() int64 { return b.length }

// Bytes returns the whole review in one slice of its own.
func (b *Body) Bytes(uid types.UID) []byte {
	r := b.Reader(uid)
	out := make([]byte, r.Len())
	if _, err := io.ReadFull(r, out); err != nil {
		panic("review: a body is shorter than its length")
	}
	return out
}

// Reader returns a reader of the review with this uid, positioned at its start.
// A v1alpha1 review has no uid and ignores it.
func (b *Body) Reader(uid types.UID) *Reader {
	r := &Reader{body: b, left: b.length}
	if b.version != V1alpha1 {
		r.uid = quote(string(uid))
		r.left += int64(len(r.uid))
	}
	return r
}

// quote returns s as a JSON string.
func quote(s string) []byte {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < 0x20 || c > 0x7e || c == '"' || c == '\\' {
			q, err := json.Marshal(s)
			if err != nil {
				panic("review: a string does not encode: " + err.Error())
			}
			return q
		}
	}
	q := make([]byte, 0, len(s)+2)
	q = append(q, '"')
	q = append(q, s...)
	return append(q, '"')
}

// Reader reads one review. It implements io.ReadCloser and io.WriterTo, and never
// fails. It is not safe for concurrent use; any number of Readers of one Body
// are.
type Reader struct {
	body *Body
	uid  []byte
	// next counts the segments read so far, the uid as one of them; rest is what
	// is left of the current one.
	next int
	rest []byte
	left int64
}

// Len returns the number of bytes not yet read: right after [Body.Reader], the
// length of the whole review.
func (r *Reader) Len() int64 { return r.left }

// advance makes rest the next segment that is not empty; false at the end.
func (r *Reader) advance() bool {
	for len(r.rest) == 0 {
		i := r.next
		r.next++
		switch {
		case i == 1:
			r.rest = r.uid
			continue
		case i > 1:
			i--
		}
		if i >= len(r.body.segments) {
			r.next--
			return false
		}
		r.rest = r.body.segments[i]
	}
	return true
}

// Read implements io.Reader.
func (r *Reader) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) && r.advance() {
		c := copy(p[n:], r.rest)
		r.rest = r.rest[c:]
		n += c
	}
	r.left -= int64(n)
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// WriteTo implements io.WriterTo; the shared bytes are handed to w as they are.
func (r *Reader) WriteTo(w io.Writer) (int64, error) {
	var total int64
	for r.advance() {
		n, err := w.Write(r.rest)
		r.rest = r.rest[n:]
		r.left -= int64(n)
		total += int64(n)
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// Close implements io.Closer. It does nothing.
func (r *Reader) Close() error { return nil }
