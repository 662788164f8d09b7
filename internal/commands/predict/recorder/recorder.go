package recorder

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/requestlog"
	"github.com/gatehouse-dev/gatehouse/internal/kit/temporary"
)

// Options configure a recording. Cluster, Name and Dir must be set.
type Options struct {
	// Cluster is the client configuration of the cluster.
	Cluster *rest.Config
	// Name is the name of the webhook configuration, made by NewName.
	Name string
	// Resources lists the resources to record, as RESOURCE[/SUBRESOURCE][.GROUP]; empty means all except events and
	// leases, without subresources.
	Resources []string
	// Namespaces limits the recording to requests in these namespaces; if empty, all except ExcludeNamespaces are
	// recorded.
	Namespaces, ExcludeNamespaces []string
	// Untimed includes requests that contain no time: deletions, connections, and writes of objects without managed
	// fields.
	Untimed bool
	// Redactions name fields to redact in addition to credentials.
	Redactions []*Redaction

	// Dir is the directory of the files, which are compressed if Compress is set. MaxSize is the size of a file, in
	// bytes, at which the next is begun, and MaxFiles the number of files kept.
	Dir      string
	Compress bool
	MaxSize  int64
	MaxFiles int

	// Place is the address at which the recorder listens.
	temporary.Place
}

// Recorder records requests. It is made by New and used once.
type Recorder struct {
	registration
	listener net.Listener
	pair     tls.Certificate
	output   output
	labels   *namespaceLabels
	// reviews are waiting to be written, and waiting is their size in bytes.
	reviews chan review
	waiting atomic.Int64

	// registered reports whether the webhook may be registered.
	registered                atomic.Bool
	written, lost, unreadable atomic.Int64
}

type review struct {
	at   time.Time
	body []byte
	// auditID is the ID of the request in the audit log, if the API server sends it.
	auditID string
}

const (
	// maxReview bounds a review, in bytes: two objects of the largest size that etcd accepts, and the rest of the
	// review.
	maxReview = 8 << 20
	// maxWaiting and maxReviews bound the size and the number of reviews waiting to be written.
	maxWaiting = 64 << 20
	maxReviews = 10_000
	// flushEvery bounds the part of a recording that is lost if the recorder is killed.
	flushEvery    = time.Second
	drainTimeout  = 2 * time.Second
	removeTimeout = 20 * time.Second
)

// New starts listening and registers nothing yet. Close must be called unless Run is. The error is one sentence that
// names the option.
func New(o Options) (*Recorder, error) {
	r := &Recorder{registration: registration{Options: &o, name: o.Name, way: "/" + strings.ToLower(rand.Text())}, reviews: make(chan review, maxReviews)}
	r.output = output{dir: o.Dir, compress: o.Compress, maxSize: o.MaxSize, maxFiles: o.MaxFiles, now: time.Now}
	var err error
	if r.client, err = kubernetes.NewForConfig(r.clock.Reading(o.Cluster)); err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	r.probe = &temporary.Probe{Client: r.client, Name: r.name, Namespace: r.probeNamespace(), Probed: make(chan struct{}, 1)}
	client, err := kubernetes.NewForConfig(o.Cluster)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	if r.labels, err = newNamespaceLabels(client); err != nil {
		return nil, err
	}
	listener, hosts, base, err := o.Listen()
	if err != nil {
		return nil, err
	}
	r.listener, r.base = listener, base
	if err := r.certify(hosts); err != nil {
		r.Close()
		return nil, fmt.Errorf("making a certificate: %w", err)
	}
	return r, nil
}

// Close closes the listener.
func (r *Recorder) Close() { r.listener.Close() }

// certify makes the serving certificate.
func (r *Recorder) certify(hosts []string) error {
	var ips []net.IP
	if ip := net.ParseIP(hosts[0]); ip != nil {
		ips = append(ips, ip)
	}
	chain, key, err := cert.GenerateSelfSignedCertKey(hosts[0], ips, hosts[1:])
	if err != nil {
		return err
	}
	r.authority = chain
	r.pair, err = tls.X509KeyPair(chain, key)
	return err
}

// reachedAt describes where the cluster reaches the recorder.
func (r *Recorder) reachedAt() string {
	if r.Service != "" {
		return "the service " + r.Service
	}
	return r.base
}

// Counts has the numbers of requests that were written, that were lost because too many arrived at a time, and that
// were not readable.
type Counts struct{ Written, Lost, Unreadable int64 }

// Counts returns the numbers so far.
func (r *Recorder) Counts() Counts {
	return Counts{r.written.Load(), r.lost.Load(), r.unreadable.Load()}
}

// Registered reports whether the webhook of the recorder may be registered in the cluster.
func (r *Recorder) Registered() bool { return r.registered.Load() }

// Run registers the webhook and records until ctx ends. It then removes the registration. It calls ready, with notes
// for the user, when the API server has called the webhook.
func (r *Recorder) Run(ctx context.Context, ready func(notes []string)) error {
	defer r.listener.Close()
	if err := r.output.open(); err != nil {
		return err
	}
	server := &http.Server{Handler: r, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute,
		ErrorLog: log.New(io.Discard, "", 0), TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{r.pair}}}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := server.ServeTLS(r.listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serving: %w", err)
		}
		return nil
	})
	group.Go(func() error {
		r.labels.informer.RunWithContext(ctx)
		return nil
	})
	stopped := make(chan struct{})
	group.Go(func() error { return r.write(stopped) })
	group.Go(func() error {
		defer close(stopped)
		err := r.keep(ctx, ready)
		// Reviews that arrive while the registration is being removed are still answered.
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
		defer cancel()
		if server.Shutdown(drain) != nil {
			server.Close()
		}
		return err
	})
	return group.Wait()
}

// keep keeps the webhook registered until ctx ends.
func (r *Recorder) keep(ctx context.Context, ready func([]string)) (err error) {
	var notes []string
	// The first response also shows the clock of the server.
	gone, err := r.sweep(ctx)
	if err != nil {
		return end(ctx, err)
	}
	for _, name := range gone {
		notes = append(notes, "removed the registration of a recorder that is gone: "+name)
	}
	defer func() {
		remove, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
		defer cancel()
		settled := time.Duration(0)
		if r.stored == nil {
			// A create without a response may still take effect.
			settled = drainTimeout
		}
		failed := Remove(remove, r.Cluster, r.name, settled)
		r.registered.Store(failed != nil)
		err = errors.Join(err, failed)
	}()
	r.registered.Store(true)
	if err := r.create(ctx); err != nil {
		return end(ctx, err)
	}
	note, err := r.probe.Await(ctx, r.reachedAt())
	if err != nil {
		return end(ctx, err)
	}
	if note != "" {
		notes = append(notes, note)
	}
	if note := r.labels.await(ctx); note != "" && ctx.Err() == nil {
		notes = append(notes, note)
	}
	if err := r.renew(ctx); err != nil {
		return end(ctx, err)
	}
	ready(notes)
	return temporary.Keep(ctx, r.renew, func(err error) {
		if err != nil {
			klog.ErrorS(err, "Cannot renew the registration; requests are not recorded meanwhile")
		} else {
			klog.InfoS("The registration is renewed again")
		}
	})
}

// end returns the error, or nil if ctx has ended.
func end(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// ServeHTTP allows every request, before it does anything with it.
func (r *Recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodPost || req.URL.Path != r.path(recordPath) && req.URL.Path != r.path(probePath) {
		http.NotFound(w, req)
		return
	}
	at := time.Now()
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxReview))
	if err != nil {
		r.lost.Add(1)
		http.Error(w, "the review is not readable", http.StatusBadRequest)
		return
	}
	var sent struct {
		Request struct {
			UID json.RawMessage `json:"uid"`
		} `json:"request"`
	}
	if !requestlog.Decode(body, &sent, requestlog.Lenient) || !bytes.HasPrefix(sent.Request.UID, []byte(`"`)) {
		r.unreadable.Add(1)
		http.Error(w, "the body is not an AdmissionReview with a request", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%s,"allowed":true,"auditAnnotations":{%q:%[1]s}}}`, sent.Request.UID, requestlog.AuditKey)
	if req.URL.Path == r.path(probePath) {
		r.probe.Asked()
		return
	}
	if r.waiting.Add(int64(len(body))) <= maxWaiting {
		select {
		case r.reviews <- review{at, body, req.Header.Get(auditv1.HeaderAuditID)}:
			return
		default:
		}
	}
	r.waiting.Add(-int64(len(body)))
	r.lost.Add(1)
}

// path returns a path below the random path of the recorder, which is below the path of --url.
func (r *Recorder) path(path string) string { return temporary.Path(r.base, r.way+path) }

// write writes reviews until stopped, and then the reviews still waiting.
func (r *Recorder) write(stopped <-chan struct{}) (err error) {
	defer func() { err = errors.Join(err, r.output.close()) }()
	flush := time.NewTicker(flushEvery)
	defer flush.Stop()
	for err == nil {
		select {
		case v := <-r.reviews:
			err = r.writeReview(v)
		case <-flush.C:
			err = r.output.flush()
		case <-stopped:
			for err == nil && len(r.reviews) > 0 {
				err = r.writeReview(<-r.reviews)
			}
			if err == nil {
				return nil
			}
		}
	}
	return fmt.Errorf("writing the recorded requests: %w", err)
}

// writeReview writes one request.
func (r *Recorder) writeReview(v review) error {
	defer r.waiting.Add(-int64(len(v.body)))
	// Requests that cannot be evaluated are written, too: the reader reports the reason.
	q, _ := requestlog.FromReview(v.body)
	if q == nil {
		r.unreadable.Add(1)
		return nil
	}
	if q.Name == r.name && q.DryRun {
		// The probe.
		return nil
	}
	q.ID, q.Time, q.NamespaceLabels = cmp.Or(v.auditID, q.ID), v.at.UTC(), r.labels.of(q.Namespace)
	if err := redact(q, r.Redactions); err != nil {
		// A request that may not be fully redacted is not written.
		r.unreadable.Add(1)
		return nil
	}
	line, err := json.Marshal(q)
	if err != nil {
		return err
	}
	if err := r.output.line(line); err != nil {
		return err
	}
	r.written.Add(1)
	return nil
}
