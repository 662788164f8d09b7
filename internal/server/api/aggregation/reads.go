package aggregation

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/internal/kit/metric"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/replies"
)

// Responses of a remote server to reads of this server itself are bounded (S22.23). Responses to
// clients are not bounded: they are passed through.
const (
	// longestWatch bounds the time of a watch without a timeout.
	longestWatch = 10 * time.Minute
	// longestRetry bounds how long a server may make its reader wait, in seconds.
	longestRetry = 10
	// pageSize is how many objects a list asks for at once, and maxObjects how many of all
	// kinds of a group version are followed.
	pageSize, maxObjects = 500, 100_000
	// maxObject bounds one object, maxListed the bytes read of a list, and maxKept the bytes kept
	// of it.
	maxObject, maxListed, maxKept = 3 << 20, 256 << 20, 32 << 20
	// maxAnswer bounds any other response, and maxError an error response, in bytes.
	maxAnswer, maxError = 4 << 20, 64 << 10
	// maxOwners bounds the owners and the finalizers of an object.
	maxOwners = 1000
)

// longestRead bounds the time of a read, except watches. Tests shorten it.
var longestRead = time.Minute

// Reads bounds this server's own reads from remote servers. The zero value bounds nothing until
// Follow is called. It is safe for concurrent use.
type Reads struct{ aggregator atomic.Pointer[Aggregator] }

// Follow sets the Aggregator, which has the remote servers.
func (r *Reads) Follow(a *Aggregator) {
	// The metric exists before the first response is refused.
	refused()
	r.aggregator.Store(a)
}

// Wrap returns a transport for requests of this server to itself.
func (r *Reads) Wrap(next http.RoundTripper) http.RoundTripper { return bounded{r, next} }

type bounded struct {
	reads *Reads
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	p := b.reads.proxy(req)
	if p == nil {
		return b.next.RoundTrip(req)
	}
	r := &read{next: b.next, proxy: p, path: req.URL.Path}
	accept := req.Header.Get("Accept")
	switch query := req.URL.Query(); {
	case req.Method != http.MethodGet || !strings.Contains(accept, "as=PartialObjectMetadata"):
		return r.bare(req)
	case query.Get("watch") == "true" || query.Get("watch") == "1":
		return r.watch(req, query)
	case strings.Contains(accept, "as=PartialObjectMetadataList"):
		return r.list(req, query)
	default:
		return r.bare(req)
	}
}

// proxy returns the proxy of the remote server that gets a request of this server; nil if this
// server handles the request itself.
func (r *Reads) proxy(req *http.Request) *Proxy {
	a := r.aggregator.Load()
	if a == nil || len(*a.remote.Load()) == 0 {
		return nil
	}
	parts := strings.Split(strings.Trim(strings.TrimPrefix(req.URL.Path, "/openapi/v3"), "/"), "/")
	var gv schema.GroupVersion
	switch {
	case len(parts) > 1 && parts[0] == "api":
		gv.Version = parts[1]
	case len(parts) > 2 && parts[0] == "apis":
		gv.Group, gv.Version = parts[1], parts[2]
	default:
		return nil
	}
	if req.Header.Get("Impersonate-User") == "" && slices.Contains(a.options.Builtin, gv) {
		// Find leaves the request to this server.
		return nil
	}
	return a.proxy(gv)
}

// read is one read of a remote server.
type read struct {
	next  http.RoundTripper
	proxy *Proxy
	path  string
}

// refused counts the answers that were not read to their end.
var refused = sync.OnceValue(func() *metrics.CounterVec {
	return metric.Registered(metric.Counter("aggregator_refused_answers_total",
		"Answers of aggregated servers to this server that were not read to their end, by APIService: they had more bytes, objects or resources than are read, or took longer. Their objects are neither collected nor counted, or not served.", "name"))
})

// refuse returns an error to the reader with the reason why a response is not read to its end, and
// logs it for the administrator.
func (r *read) refuse(format string, args ...any) error {
	t := r.proxy.target.Load()
	err := fmt.Errorf("%s: the answer for %s %w", t, r.path, fmt.Errorf(format, args...))
	refused().WithLabelValues(t.name).Inc()
	if now := time.Now().Unix(); now-r.proxy.reported.Load() >= 60 {
		r.proxy.reported.Store(now)
		klog.ErrorS(err, "An aggregated server answers more than is read; its objects are left out")
	}
	return err
}

// send sends a request, which lasts until the body of the answer is closed, but not longer than
// within.
func (r *read) send(req *http.Request, within time.Duration) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(req.Context(), within)
	response, err := r.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	replies.WhenClosed(response, cancel)
	if response.StatusCode < 200 || response.StatusCode > 299 {
		response.Body = body{io.LimitReader(response.Body, maxError), response.Body}
		response.ContentLength = -1
		if after := response.Header.Get("Retry-After"); after != "" {
			if seconds, err := strconv.Atoi(after); err != nil || seconds > longestRetry {
				response.Header.Set("Retry-After", strconv.Itoa(longestRetry))
			}
		}
	}
	return response, nil
}

type body struct {
	io.Reader
	io.Closer
}

// bare bounds the size of an answer, and does not change the answer.
func (r *read) bare(req *http.Request) (*http.Response, error) {
	response, err := r.send(req, longestRead)
	if err != nil {
		return nil, err
	}
	response.Body = body{&window{read: r, from: response.Body, most: maxAnswer}, response.Body}
	return response, nil
}

// window reads at most the bytes that most returns after each move, and then fails.
type window struct {
	read       *read
	from       io.Reader
	most, used int64
	// all is the number of bytes read in total, and total the limit; 0 means no limit.
	all, total int64
}

// Read implements io.Reader.
func (w *window) Read(p []byte) (int, error) {
	if w.used > w.most {
		return 0, w.read.refuse("has a part of more than %d bytes", w.most)
	}
	if w.total > 0 && w.all > w.total {
		return 0, w.read.refuse("has more than %d bytes", w.total)
	}
	n, err := w.from.Read(p)
	w.used += int64(n)
	w.all += int64(n)
	return n, err
}

func (w *window) move() { w.used = 0 }

// inJSON returns a request for the same objects in JSON, which can be read part by part.
func inJSON(req *http.Request, kind string, query url.Values) *http.Request {
	next := req.Clone(req.Context())
	next.Header.Set("Accept", "application/json;as="+kind+";g=meta.k8s.io;v=v1,application/json")
	next.URL.RawQuery = query.Encode()
	return next
}

// list reads a list page by page and object by object, and keeps of each object the fields that
// controllers of all kinds read. The answer has no further page.
func (r *read) list(req *http.Request, query url.Values) (*http.Response, error) {
	reader := req.Context()
	within, cancel := context.WithTimeout(reader, longestRead)
	defer cancel()
	req = req.Clone(within)
	query.Set("limit", strconv.Itoa(pageSize))
	l := &listing{read: r}
	for {
		response, err := r.send(inJSON(req, "PartialObjectMetadataList", query), longestRead)
		if err != nil {
			return nil, err
		}
		if response.StatusCode != http.StatusOK {
			// The time of the list ends with this function, before the caller reads the answer.
			said, _ := io.ReadAll(response.Body)
			response.Body.Close()
			response.Body = io.NopCloser(bytes.NewReader(said))
			return response, nil
		}
		next, err := l.page(response.Body)
		response.Body.Close()
		if err != nil && within.Err() != nil && reader.Err() == nil {
			return nil, r.refuse("takes more than %s", longestRead)
		}
		if err != nil {
			return nil, fmt.Errorf("list of %s: %w", r.proxy.target.Load(), err)
		}
		if next == "" {
			return l.response(response)
		}
		query.Set("continue", next)
		query.Del("resourceVersion")
		query.Del("resourceVersionMatch")
	}
}

// listing is a partly read list.
type listing struct {
	*read
	version string
	items   bytes.Buffer
	count   int
	all     int64
}

// page reads a page and returns the token of the next one.
func (l *listing) page(from io.Reader) (next string, err error) {
	w := &window{read: l.read, from: from, most: maxObject, all: l.all, total: maxListed}
	defer func() { l.all = w.all }()
	d := json.NewDecoder(w)
	if err := expect(d, '{'); err != nil {
		return "", l.refuse("is not a list: %w", err)
	}
	before := l.count
	for d.More() {
		w.move()
		key, err := d.Token()
		if err != nil {
			return "", err
		}
		switch key {
		case "metadata":
			var m metav1.ListMeta
			if err := d.Decode(&m); err != nil {
				return "", err
			}
			// All pages are of the revision of the first one.
			l.version, next = cmp.Or(l.version, m.ResourceVersion), m.Continue
		case "items":
			err = l.objects(d, w)
		default:
			var other json.RawMessage
			err = d.Decode(&other)
		}
		if err != nil {
			return "", err
		}
	}
	if next != "" && l.count == before {
		return "", l.refuse("has an empty page, and names another one")
	}
	if _, err := d.Token(); err != nil {
		return "", fmt.Errorf("%s: the list for %s does not end: %w", l.proxy.target.Load(), l.path, err)
	}
	return next, nil
}

func (l *listing) objects(d *json.Decoder, w *window) error {
	if token, err := d.Token(); err != nil || token == nil {
		return err
	} else if token != json.Delim('[') {
		return l.refuse("has items that are not a list")
	}
	for d.More() {
		w.move()
		var o metav1.PartialObjectMetadata
		if err := d.Decode(&o); err != nil {
			return err
		}
		data, err := l.keptPart(&o)
		if err != nil {
			return err
		}
		if l.count++; !l.proxy.room(l.path, false, l.count, int64(l.items.Len()+len(data))) {
			return l.refuse("has so much that more than %d objects, or %d bytes, of one group version would be followed", maxObjects, maxKept)
		}
		if l.items.Len() > 0 {
			l.items.WriteByte(',')
		}
		l.items.Write(data)
	}
	_, err := d.Token()
	return err
}

// keptPart returns the part of an object that is kept, in JSON.
func (r *read) keptPart(o *metav1.PartialObjectMetadata) ([]byte, error) {
	if len(o.OwnerReferences) > maxOwners || len(o.Finalizers) > maxOwners {
		return nil, r.refuse("has an object with more than %d owners or finalizers", maxOwners)
	}
	return json.Marshal(&metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/v1"},
		ObjectMeta: metav1.ObjectMeta{
			Name: o.Name, Namespace: o.Namespace, UID: o.UID, ResourceVersion: o.ResourceVersion, Generation: o.Generation,
			CreationTimestamp: o.CreationTimestamp, DeletionTimestamp: o.DeletionTimestamp, DeletionGracePeriodSeconds: o.DeletionGracePeriodSeconds,
			OwnerReferences: o.OwnerReferences, Finalizers: o.Finalizers,
		},
	})
}

func (l *listing) response(like *http.Response) (*http.Response, error) {
	version, err := json.Marshal(l.version)
	if err != nil {
		return nil, err
	}
	head := fmt.Sprintf(`{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":%s},"items":[`, version)
	all := io.MultiReader(strings.NewReader(head), &l.items, strings.NewReader("]}"))
	answer := *like
	answer.Header = http.Header{"Content-Type": {"application/json"}}
	answer.Body, answer.ContentLength = io.NopCloser(all), int64(len(head)+l.items.Len()+len("]}"))
	return &answer, nil
}

func expect(d *json.Decoder, want json.Delim) error {
	token, err := d.Token()
	if err == nil && token != want {
		err = errors.New("it does not begin with " + want.String())
	}
	return err
}

// watch reads a watch event by event.
func (r *read) watch(req *http.Request, query url.Values) (*http.Response, error) {
	within := longestWatch
	if seconds, err := strconv.Atoi(query.Get("timeoutSeconds")); err == nil && seconds > 0 {
		within = min(within, time.Duration(seconds)*time.Second+longestRead)
	}
	response, err := r.send(inJSON(req, "PartialObjectMetadata", query), within)
	if err != nil || response.StatusCode != http.StatusOK {
		return response, err
	}
	w := &window{read: r, from: response.Body, most: maxObject}
	response.Header = http.Header{"Content-Type": {"application/json;stream=watch"}}
	response.Body = body{&events{read: r, window: w, decoder: json.NewDecoder(w), began: time.Now()}, response.Body}
	response.ContentLength = -1
	return response, nil
}

// perSecond bounds the events of a watch that are read in a second, after a burst of as many.
const perSecond = 2000

// events are the events of a watch, with the parts of their objects that are kept.
type events struct {
	*read
	window  *window
	decoder *json.Decoder
	began   time.Time
	// seen counts the events; objects and size are the objects and bytes that the events add to the
	// followed ones.
	seen    int
	objects int
	size    int64
	unread  []byte
	err     error
}

// Read implements io.Reader.
func (e *events) Read(p []byte) (int, error) {
	for len(e.unread) == 0 {
		if e.err != nil {
			return 0, e.err
		}
		e.next()
	}
	n := copy(p, e.unread)
	e.unread = e.unread[n:]
	return n, nil
}

// next reads an event.
func (e *events) next() {
	if e.seen++; e.seen > perSecond {
		// A server that sends faster waits.
		time.Sleep(min(time.Second, time.Until(e.began.Add(time.Duration(e.seen-perSecond)*time.Second/perSecond))))
	}
	e.window.move()
	var event metav1.WatchEvent
	if e.err = e.decoder.Decode(&event); e.err != nil {
		e.err = e.unlike(e.err)
		return
	}
	switch watch.EventType(event.Type) {
	case watch.Added, watch.Modified, watch.Deleted, watch.Bookmark:
		var o metav1.PartialObjectMetadata
		if e.err = json.Unmarshal(event.Object.Raw, &o); e.err != nil {
			e.err = e.unlike(e.err)
			return
		}
		if event.Object.Raw, e.err = e.keptPart(&o); e.err != nil {
			return
		}
	}
	switch watch.EventType(event.Type) {
	case watch.Added:
		e.objects++
		e.size += int64(len(event.Object.Raw))
	case watch.Deleted:
		e.objects--
		e.size -= int64(len(event.Object.Raw))
	}
	if !e.proxy.room(e.path, true, e.objects, e.size) {
		// The reader then lists again, and the list has the current objects.
		_ = e.refuse("has so many events that more than %d objects, or %d bytes, of one group version would be followed", maxObjects, maxKept)
		event.Type = string(watch.Error)
		event.Object.Raw, _ = json.Marshal(&metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
			Code: http.StatusGone, Reason: metav1.StatusReasonExpired, Message: "too many events",
		})
		e.err = io.EOF
	}
	data, err := json.Marshal(&event)
	if err != nil {
		e.err = err
		return
	}
	e.unread = append(data, '\n')
}

// unlike refuses a response that is not JSON, or not the JSON of an event. A watch may end at any
// time.
func (e *events) unlike(err error) error {
	if errors.As(err, new(*json.SyntaxError)) || errors.As(err, new(*json.UnmarshalTypeError)) {
		return e.refuse("has an event that cannot be read: %w", err)
	}
	return err
}

// followed counts the followed objects of one kind, and their bytes.
type followed struct {
	objects int
	size    int64
	at      time.Time
}

// room reports whether so many objects and bytes may be followed at a path, in addition to
// those at other paths, and then notes them. The objects that a watch adds are noted apart from
// the list that the watch follows.
func (p *Proxy) room(path string, watch bool, objects int, size int64) bool {
	key := path
	if watch {
		key += "?watch"
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	allObjects, allSize := objects, size
	for other, f := range p.mu.followed {
		switch {
		case now.Sub(f.at) > 2*longestWatch:
			delete(p.mu.followed, other)
		case other == key || !watch && other == path+"?watch":
		default:
			allObjects += f.objects
			allSize += f.size
		}
	}
	if allObjects > maxObjects || allSize > maxKept {
		delete(p.mu.followed, key)
		return false
	}
	if p.mu.followed == nil {
		p.mu.followed = map[string]followed{}
	}
	p.mu.followed[key] = followed{objects, size, now}
	return true
}

// Answers with discovery and OpenAPI documents are bounded in time, in size, and in the number
// of their values: a value takes much more memory than its text.
const (
	longestQuestion           = 20 * time.Second
	maxDiscovery, maxDocument = 2 << 20, 8 << 20
	maxValues                 = 400_000
)

// short is an answer up to a size. A longer answer ends the request.
type short struct {
	header http.Header
	code   int
	data   bytes.Buffer
	most   int64
	values int
	over   bool
	end    context.CancelFunc
}

// Header implements http.ResponseWriter.
func (s *short) Header() http.Header { return s.header }

// WriteHeader implements http.ResponseWriter.
func (s *short) WriteHeader(code int) { s.code = code }

// Write implements http.ResponseWriter.
func (s *short) Write(p []byte) (int, error) {
	// Each value but the first has a comma or a bracket before it.
	s.values += bytes.Count(p, []byte{','}) + bytes.Count(p, []byte{'{'}) + bytes.Count(p, []byte{'['})
	if s.over || int64(s.data.Len()+len(p)) > s.most || s.values > maxValues {
		s.over = true
		s.data = bytes.Buffer{}
		s.end()
		return 0, http.ErrContentLength
	}
	return s.data.Write(p)
}

// Flush implements http.Flusher.
func (s *short) Flush() {}
