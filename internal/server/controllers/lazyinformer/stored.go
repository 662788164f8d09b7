package lazyinformer

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// page is how many objects are read from etcd at once, if the request has no limit.
const page = 500

// errTended means that the request must reach a server.
var errTended = errors.New("there are objects that only a server can show")

// form is how a client wants objects: their metadata as JSON, or whole in protobuf.
type form interface {
	// mediaType is the media type of the response.
	mediaType() string
	// object encodes a stored object as it was at a revision. The error is errTended if only a
	// server can do that.
	object(kv *mvccpb.KeyValue, revision int64) ([]byte, error)
	// list encodes a list of such objects, and event an event about such an object.
	list(meta metav1.ListMeta, objects [][]byte) ([]byte, error)
	event(kind string, object []byte) ([]byte, error)
	// status encodes the status in the event of an error.
	status(status *metav1.Status) ([]byte, error)
}

// formOf returns the form in which a request for a resource is answered from etcd; nil if the
// request must reach a server.
func (t *Transport) formOf(req *http.Request, gr schema.GroupResource) form {
	switch {
	case t.Custom != nil && t.Custom(gr) && wantsMetadata(req):
		return metadataOnly{}
	case t.Whole != nil && wantsWhole(req):
		// The path of a collection ends with the version and the resource.
		if kind := t.Whole(gr); kind != "" {
			return whole{schema.GroupVersionKind{Group: gr.Group, Version: path.Base(path.Dir(req.URL.Path)), Kind: kind}}
		}
	}
	return nil
}

// object encodes a stored object, which may be encrypted.
func (t *Transport) object(ctx context.Context, gr schema.GroupResource, as form, kv *mvccpb.KeyValue, revision int64) ([]byte, error) {
	value, err := t.Values.Plain(ctx, gr, kv)
	if err != nil {
		return nil, err
	}
	return as.object(&mvccpb.KeyValue{Key: kv.Key, Value: value}, revision)
}

// list answers the list of the objects of a resource, which are below a prefix.
func (t *Transport) list(req *http.Request, gr schema.GroupResource, prefix string, as form) (*http.Response, error) {
	query := req.URL.Query()
	limit, _ := strconv.ParseInt(query.Get("limit"), 10, 64)
	from, revision, err := position(query.Get("continue"), prefix)
	if err != nil {
		return failed(req, apierrors.NewBadRequest(err.Error())), nil
	}
	objects := [][]byte{}
	var meta metav1.ListMeta
	for {
		options := []clientv3.OpOption{clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)), clientv3.WithLimit(page), clientv3.WithRev(revision)}
		if limit > 0 {
			options = append(options, clientv3.WithLimit(limit-int64(len(objects))))
		}
		found, err := t.Etcd.Get(req.Context(), from, options...)
		if errors.Is(err, rpctypes.ErrCompacted) {
			return failed(req, apierrors.NewResourceExpired("the continue token is too old")), nil
		}
		if err != nil {
			return nil, err
		}
		if revision == 0 {
			revision = found.Header.Revision
		}
		for _, kv := range found.Kvs {
			one, err := t.object(req.Context(), gr, as, kv, kv.ModRevision)
			if errors.Is(err, errTended) {
				t.tended.Store(prefix, true)
				if query.Get("continue") != "" {
					return failed(req, apierrors.NewResourceExpired(err.Error())), nil
				}
				return t.Next.RoundTrip(req)
			}
			if err != nil {
				return failed(req, apierrors.NewInternalError(err)), nil
			}
			objects = append(objects, one)
		}
		if !found.More || len(found.Kvs) == 0 {
			break
		}
		from = string(found.Kvs[len(found.Kvs)-1].Key) + "\x00"
		if limit > 0 && int64(len(objects)) >= limit {
			meta.Continue = base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d/%s", revision, strings.TrimPrefix(from, prefix)))
			break
		}
	}
	meta.ResourceVersion = strconv.FormatInt(revision, 10)
	data, err := as.list(meta, objects)
	if err != nil {
		return nil, err
	}
	return answer(req, as.mediaType(), data), nil
}

// position returns where a list continues, and at which revision; 0 means the newest.
func position(token, prefix string) (from string, revision int64, err error) {
	if token == "" {
		return prefix, 0, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		at, rest, _ := strings.Cut(string(text), "/")
		revision, err = strconv.ParseInt(at, 10, 64)
		from = prefix + rest
	}
	if err != nil {
		return "", 0, fmt.Errorf("the continue token is not one of a list before: %w", err)
	}
	return from, revision, nil
}

// failed returns the answer with the status of an error.
func failed(req *http.Request, err *apierrors.StatusError) *http.Response {
	status := err.Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	data, _ := json.Marshal(status)
	response := answer(req, "application/json", data)
	response.StatusCode = int(status.Code)
	response.Status = strconv.Itoa(response.StatusCode) + " " + http.StatusText(response.StatusCode)
	return response
}

// watch answers the watch of the objects of a resource, after a revision. It has no
// timeout of its own: only the end of the request ends it, so that informers do not have to watch
// again.
func (t *Transport) watch(req *http.Request, gr schema.GroupResource, prefix string, after int64, as form) *http.Response {
	// A member of etcd without a leader receives no writes.
	ctx, stop := context.WithCancel(clientv3.WithRequireLeader(req.Context()))
	response := answer(req, as.mediaType(), nil)
	response.ContentLength = -1
	response.Body = &events{of: t, resource: gr, as: as, ctx: req.Context(), stop: stop, from: t.Etcd.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(after+1), clientv3.WithPrevKV())}
	return response
}

// events are the events of a watch, as a client reads them.
type events struct {
	of       *Transport
	resource schema.GroupResource
	as       form

	ctx  context.Context
	stop context.CancelFunc
	from clientv3.WatchChan
	// text is the part that the client has not read yet; over is set when no more text follows.
	text bytes.Buffer
	over bool
}

// Read implements io.Reader.
func (e *events) Read(p []byte) (int, error) {
	for e.text.Len() == 0 {
		if e.over {
			return 0, io.EOF
		}
		select {
		case response, ok := <-e.from:
			if !ok {
				return 0, io.EOF
			}
			e.take(response)
		case <-e.ctx.Done():
			return 0, context.Cause(e.ctx)
		}
	}
	return e.text.Read(p)
}

// Close implements io.Closer.
func (e *events) Close() error {
	e.stop()
	return nil
}

func (e *events) take(response clientv3.WatchResponse) {
	if response.CompactRevision != 0 {
		e.end(apierrors.NewResourceExpired("etcd has forgotten what happened since"))
		return
	}
	if err := response.Err(); err != nil {
		e.end(apierrors.NewInternalError(err))
		return
	}
	for _, event := range response.Events {
		kind, kv := "MODIFIED", event.Kv
		switch {
		case event.Type == clientv3.EventTypeDelete && event.PrevKv == nil:
			e.end(apierrors.NewResourceExpired("etcd has compacted the deletions"))
			return
		case event.Type == clientv3.EventTypeDelete:
			kind, kv = "DELETED", event.PrevKv
		case event.IsCreate():
			kind = "ADDED"
		}
		object, err := e.of.object(e.ctx, e.resource, e.as, kv, event.Kv.ModRevision)
		if errors.Is(err, errTended) {
			// The list that follows reaches a server.
			e.end(apierrors.NewResourceExpired(err.Error()))
			return
		}
		if err != nil {
			e.end(apierrors.NewInternalError(err))
			return
		}
		e.write(kind, object)
	}
}

// end writes the error that ends the events.
func (e *events) end(err *apierrors.StatusError) {
	status := err.Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	if data, err := e.as.status(&status); err == nil {
		e.write("ERROR", data)
	}
	e.over = true
}

func (e *events) write(kind string, object []byte) {
	data, err := e.as.event(kind, object)
	if err != nil {
		e.over = true
		return
	}
	e.text.Write(data)
}
