package recorder

import (
	"bytes"
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
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/internal/predict/requestlog"
)

// Options say what is recorded, and where it goes. Cluster, Name and Dir must be set.
type Options struct {
	// Cluster is the configuration of a client of the cluster.
	Cluster *rest.Config
	// Name is that of the registration, made by NewName.
	Name string
	// Resources are recorded, as RESOURCE[/SUBRESOURCE][.GROUP]; none means all but events and leases,
	// without subresources.
	Resources []string
	// Namespaces are recorded if there are any, and nothing else; otherwise all but ExcludeNamespaces.
	Namespaces, ExcludeNamespaces []string
	// Untimed has requests recorded that show no time: deletions, connections, and writes of objects
	// without managed fields.
	Untimed bool
	// Redactions name what is not recorded, besides credentials.
	Redactions []*Redaction

	// Dir has the files, which are compressed with Compress. MaxSize is the size of a file, in bytes, from
	// which on the next is begun, and MaxFiles how many are kept.
	Dir      string
	Compress bool
	MaxSize  int64
	MaxFiles int

	// BindAddress and Port are where to listen; 0 is any free port.
	BindAddress string
	Port        int
	// Service is the service in front of the recorder, as NAMESPACE/NAME, and URL another way for the
	// cluster to reach it. Without both, the URL is that of BindAddress.
	Service, URL string
}

// Recorder records. It is made by New and used once.
type Recorder struct {
	registration
	listener net.Listener
	pair     tls.Certificate
	output   output
	labels   *namespaceLabels
	// reviews wait to be written, and waiting is how much memory they take.
	reviews chan review
	waiting atomic.Int64
	probed  chan struct{}

	// registered reports whether there may be a registration.
	registered                atomic.Bool
	written, lost, unreadable atomic.Int64
}

type review struct {
	at   time.Time
	body []byte
}

const (
	// maxReview bounds a review, in bytes: two objects of the largest size that etcd takes, and what is
	// around them.
	maxReview = 8 << 20
	// maxWaiting and maxReviews bound the reviews that wait to be written.
	maxWaiting = 64 << 20
	maxReviews = 10_000
	// flushEvery is how much of a recording a killed recorder loses.
	flushEvery = time.Second
	// reachedWithin is how long it may take until the server asks the webhook.
	reachedWithin = 15 * time.Second
	probeEvery    = 200 * time.Millisecond
	drainTimeout  = 2 * time.Second
	removeTimeout = 20 * time.Second
)

// newID makes a random part of a name.
func newID() string { return strings.ToLower(rand.Text()[:8]) }

// New listens, and registers nothing yet. Close must be called unless Run is. The error is one sentence that
// names the option.
func New(o Options) (*Recorder, error) {
	r := &Recorder{registration: registration{Options: &o, name: o.Name, way: "/" + strings.ToLower(rand.Text())}, reviews: make(chan review, maxReviews), probed: make(chan struct{}, 1)}
	r.output = output{dir: o.Dir, compress: o.Compress, maxSize: o.MaxSize, maxFiles: o.MaxFiles, now: time.Now}
	if err := r.newClient(o.Cluster); err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	client, err := kubernetes.NewForConfig(o.Cluster)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	if r.labels, err = newNamespaceLabels(client); err != nil {
		return nil, err
	}
	if r.listener, err = net.Listen("tcp", net.JoinHostPort(o.BindAddress, strconv.Itoa(o.Port))); err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	if err = r.reachable(); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Close gives back what New took.
func (r *Recorder) Close() { r.listener.Close() }

// reachable works out how the cluster reaches the recorder, and makes the certificate for that.
func (r *Recorder) reachable() error {
	var host string
	var names []string
	switch {
	case r.Service != "" && r.URL != "":
		return errors.New("--service and --url exclude each other")
	case r.Service != "":
		namespace, name, ok := strings.Cut(r.Service, "/")
		if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
			return fmt.Errorf("--service %q is not NAMESPACE/NAME", r.Service)
		}
		host, names = name+"."+namespace+".svc", []string{name + "." + namespace + ".svc.cluster.local"}
	case r.URL != "":
		at, err := url.Parse(r.URL)
		if err != nil || at.Scheme != "https" || at.Host == "" || at.RawQuery != "" || at.User != nil {
			return fmt.Errorf("--url %q is not https://HOST[:PORT]", r.URL)
		}
		host, r.base = at.Hostname(), strings.TrimSuffix(r.URL, "/")
	case net.ParseIP(r.BindAddress).IsUnspecified():
		return fmt.Errorf("--bind-address %s does not say how the cluster reaches this program: add --service or --url", r.BindAddress)
	default:
		host, r.base = r.BindAddress, "https://"+r.listener.Addr().String()
	}
	var ips []net.IP
	if ip := net.ParseIP(host); ip != nil {
		ips = append(ips, ip)
	}
	chain, key, err := cert.GenerateSelfSignedCertKey(host, ips, names)
	if err != nil {
		return fmt.Errorf("making a certificate: %w", err)
	}
	r.authority = chain
	r.pair, err = tls.X509KeyPair(chain, key)
	return err
}

// reachedAt is where the cluster reaches the recorder.
func (r *Recorder) reachedAt() string {
	if r.Service != "" {
		return "the service " + r.Service
	}
	return r.base
}

// Counts are how many requests were written, were lost since there were too many at a time, and were sent in a
// form that is not readable.
type Counts struct{ Written, Lost, Unreadable int64 }

// Counts returns what was recorded so far.
func (r *Recorder) Counts() Counts {
	return Counts{r.written.Load(), r.lost.Load(), r.unreadable.Load()}
}

// Registered reports whether there may be a registration of the recorder in the cluster.
func (r *Recorder) Registered() bool { return r.registered.Load() }

// Run registers the webhook, and records until ctx ends. It then removes the registration. It calls ready when
// the server asks the webhook, with what the user should know.
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
		// Webhooks that are asked while the registration is removed get their answers.
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
		defer cancel()
		if server.Shutdown(drain) != nil {
			server.Close()
		}
		return err
	})
	return group.Wait()
}

// keep keeps the registration while ctx lasts.
func (r *Recorder) keep(ctx context.Context, ready func([]string)) (err error) {
	var notes []string
	// The first answer also shows the clock of the server.
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
			// A create without an answer may still be on its way.
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
	note, err := r.awaitReached(ctx)
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
	tick := time.NewTicker(renewal)
	defer tick.Stop()
	for failed := false; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		switch err := r.renew(ctx); {
		case errors.Is(err, errRemoved):
			return err
		case err != nil && ctx.Err() == nil:
			if !failed {
				klog.ErrorS(err, "Cannot renew the registration; requests are not recorded meanwhile")
			}
			failed = true
		case err == nil && failed:
			klog.InfoS("The registration is renewed again")
			failed = false
		}
	}
}

// end is an error, or nil if it comes of the end of ctx.
func end(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// awaitReached returns when the server has asked the webhook of the probe.
func (r *Recorder) awaitReached(ctx context.Context) (note string, err error) {
	deadline := time.After(reachedWithin)
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		if err := r.probe(ctx); err != nil {
			return fmt.Sprintf("whether the cluster reaches %s was not tried: %v", r.reachedAt(), err), nil
		}
		select {
		case <-r.probed:
			return "", nil
		case <-tick.C:
		case <-deadline:
			return "", fmt.Errorf("the cluster does not reach %s: no call arrived within %s; --bind-address with --url or --service say how it does", r.reachedAt(), reachedWithin)
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// ServeHTTP lets every request pass, before it does anything with it.
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
	uid, ok := uidOf(body)
	if !ok {
		r.unreadable.Add(1)
		http.Error(w, "the body is not an AdmissionReview with a request", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%s,"allowed":true}}`, uid)
	if req.URL.Path == r.path(probePath) {
		select {
		case r.probed <- struct{}{}:
		default:
		}
		return
	}
	if r.waiting.Add(int64(len(body))) <= maxWaiting {
		select {
		case r.reviews <- review{at, body}:
			return
		default:
		}
	}
	r.waiting.Add(-int64(len(body)))
	r.lost.Add(1)
}

// path is a path below the way of the recorder, which is below that of --url.
func (r *Recorder) path(path string) string {
	if at, err := url.Parse(r.base); err == nil {
		return at.Path + r.way + path
	}
	return r.way + path
}

// uidOf reads the uid of a review, as JSON, without reading what follows it.
func uidOf(body []byte) (json.RawMessage, bool) {
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, false
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, false
		}
		if name == "request" {
			if t, err := d.Token(); err != nil || t != json.Delim('{') {
				return nil, false
			}
			continue
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, false
		}
		if name == "uid" {
			return value, len(value) > 1 && value[0] == '"'
		}
	}
	return nil, false
}

// write writes what is recorded until stopped, and then what waits.
func (r *Recorder) write(stopped <-chan struct{}) (err error) {
	defer func() { err = errors.Join(err, r.output.close()) }()
	flush := time.NewTicker(flushEvery)
	defer flush.Stop()
	for {
		select {
		case v := <-r.reviews:
			if err := r.one(v); err != nil {
				return fmt.Errorf("writing what is recorded: %w", err)
			}
		case <-flush.C:
			if err := r.output.flush(); err != nil {
				return fmt.Errorf("writing what is recorded: %w", err)
			}
		case <-stopped:
			for {
				select {
				case v := <-r.reviews:
					if err := r.one(v); err != nil {
						return fmt.Errorf("writing what is recorded: %w", err)
					}
				default:
					return nil
				}
			}
		}
	}
}

// one writes one request.
func (r *Recorder) one(v review) error {
	defer r.waiting.Add(-int64(len(v.body)))
	// What cannot be judged is written, too: the reader says why.
	q, _ := requestlog.FromReview(v.body)
	if q == nil {
		r.unreadable.Add(1)
		return nil
	}
	if q.Name == r.name && q.DryRun {
		// The probe.
		return nil
	}
	q.Time, q.NamespaceLabels = v.at.UTC(), r.labels.of(q.Namespace)
	if err := redact(q, r.Redactions); err != nil {
		// What may have to be left out is not written.
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
