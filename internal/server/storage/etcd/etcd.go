package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"k8s.io/klog/v2"
)

// startTimeout bounds how long an embedded etcd may take to serve once it has read its data, and
// closeTimeout how long it may take to end. The server does not wait longer for an etcd, because
// acknowledged writes are on disk.
const startTimeout, closeTimeout = 60 * time.Second, 4 * time.Second

// memberName is the name of the only member of an embedded etcd, and peerURL the address that it
// advertises to other members.
const memberName = "gatehouse"

var peerURL = url.URL{Scheme: "unix", Path: "/gatehouse-peer"}

var initialCluster = memberName + "=" + peerURL.String()

// Options configure an embedded etcd.
type Options struct {
	// Dir is the directory of the data. Start makes it if it does not exist.
	Dir string
	// MinFree is the number of bytes of the disk with Dir that must be free for clients to write; 0
	// means DefaultMinFree, and a negative value that the free space is not checked.
	MinFree int64
	// Quota bounds the database, in bytes; 0 means DefaultQuota.
	Quota int64
	// Version is the version of the program, for other programs that find the data in use.
	Version string
	// NoFsync lets etcd answer before a write is on the disk: a crash of the machine loses data,
	// a crash of the process does not.
	NoFsync bool
	// Member, if set, is called when this process has locked Dir, and returns the configuration of the
	// etcd as a member of a cluster.
	Member func(context.Context) (*Member, error)

	// Alone turns the data of a member into the data of an etcd with this member only.
	Alone bool
	// lock is the lock of Dir if the caller has taken it.
	lock *Lock
	// free returns the free space of a disk; nil asks the operating system.
	free func(dir string) (uint64, error)
}

// Server is an embedded etcd.
type Server struct {
	dir     string
	limit   int64
	etcd    *embed.Etcd
	lock    *Lock
	sockets *os.File
	failure *failure
	space   *space
	reads   reads
	ending  ending
	// closing ends, by close, when the etcd is about to be closed; watches by calls end with it.
	closing context.Context
	close   context.CancelFunc
	// member is nil for an etcd alone, and unheard is set when it has started again (errUnheard).
	member  *Member
	unheard bool
	// front is the listener for the other members; nil for an etcd alone.
	front *front
	// majority is nil for an etcd alone.
	majority *majority

	// stop ends the goroutines that watch the etcd, and watchers waits for them.
	stop     context.CancelFunc
	watchers sync.WaitGroup
	errors   chan error
}

// Start starts an etcd. It returns an error that wraps ErrInUse when another process
// has the directory, an error that names the directory when the data cannot be read or the disk
// is full, and the cause of ctx's end as soon as ctx ends.
func Start(ctx context.Context, o Options) (*Server, error) {
	lock := o.lock
	if lock == nil {
		var err error
		if lock, err = TakeLock(o.Dir); err != nil {
			return nil, err
		}
	}
	lock.version = o.Version
	if err := lock.announce("", ""); err != nil {
		lock.Close()
		return nil, fmt.Errorf("data directory: %w", err)
	}
	sockets, err := makeSocketDir(o.Dir)
	if err != nil {
		lock.Close()
		return nil, fmt.Errorf("directory of etcd's socket: %w", err)
	}
	s := &Server{
		dir: o.Dir, limit: cmp.Or(o.Quota, DefaultQuota), lock: lock, sockets: sockets, failure: newFailure(), space: newSpace(o),
		stop: func() {}, errors: make(chan error, 1),
	}
	s.closing, s.close = context.WithCancel(context.WithoutCancel(ctx))
	if err := s.start(ctx, o); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Quota returns the greatest size of the database, in bytes.
func (s *Server) Quota() int64 { return s.limit }

// Serves announces the URL of the API that this process serves from the data (Serving).
func (s *Server) Serves(url string) error { return s.lock.announce(s.Endpoint(), url) }

func (s *Server) start(ctx context.Context, o Options) error {
	if err := removeCopies(o.Dir); err != nil {
		return err
	}
	if err := s.space.checkStart(); err != nil {
		return err
	}
	if o.Member != nil {
		var err error
		if s.member, err = o.Member(ctx); err != nil {
			return err
		}
	}
	cfg := embed.NewConfig()
	cfg.Name = memberName
	cfg.Dir = o.Dir
	clientURL := url.URL{Scheme: "unix", Path: filepath.Join(s.sockets.Name(), socketName)}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{clientURL}, []url.URL{clientURL}
	// An etcd alone has no peers. It would listen for peers on an abstract socket, through which
	// every user of the machine could take part in the consensus. In a cluster, peers connect to
	// the front.
	cfg.ListenPeerUrls = nil
	// The advertised peer URL is recorded in the data. It must be the same at every start. No
	// process ever connects to it: the cluster has one member.
	cfg.AdvertisePeerUrls = []url.URL{peerURL}
	cfg.InitialCluster = initialCluster
	// A cluster of one elects itself; waiting for others would only delay it.
	cfg.TickMs, cfg.ElectionMs = 10, 50
	// Nor does it have to keep writes in memory for members that are behind: etcd would keep 5,000.
	// Zero means the default of etcd.
	cfg.SnapshotCatchUpEntries = 1
	cfg.ForceNewCluster = o.Alone
	if s.member != nil {
		var err error
		if s.front, err = newFront(s.member, &s.ending); err != nil {
			return err
		}
		s.member.configure(cfg)
		s.majority = newMajority()
		if err := s.member.CheckCertificates(); err != nil {
			klog.Errorf("Other members refuse this one: %v", err)
		}
	}
	s.failure.alone = s.member == nil
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(s.failure.logger())
	cfg.LogLevel = "error"
	// Objects may have 1.5 MiB in storage, but etcd limits the whole request.
	cfg.MaxRequestBytes = 8 << 20
	cfg.QuotaBackendBytes = s.limit
	cfg.UnsafeNoFsync = o.NoFsync
	cfg.GRPCAdditionalServerOptions = s.ending.options()
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	err := s.startReady(ctx, cfg)
	if errors.Is(err, errUnheard) {
		s.front.serve(nil)
		closeEtcd(s.etcd, func() {})
		err = s.startReady(ctx, cfg)
	}
	if err != nil {
		return err
	}
	if err := s.lock.announce(s.Endpoint(), ""); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	s.space.look()
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	s.watchers.Go(func() { s.space.run(watching) })
	s.watchers.Go(func() { (&quota{limit: s.limit, space: s.space}).run(watching, s.etcd.Server) })
	s.watchers.Go(func() { s.awaitEnd(watching) })
	if s.front != nil {
		s.watchers.Go(func() { s.front.watch(watching) })
	}
	if s.majority != nil {
		s.watchers.Go(func() { s.majority.run(watching, s.led, s.missing) })
	}
	return nil
}

// startReady starts etcd and waits until it serves.
func (s *Server) startReady(ctx context.Context, cfg *embed.Config) error {
	etcd, err := startSafely(ctx, cfg, s.failure)
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		return fmt.Errorf("data directory %s cannot be used by etcd: %w", s.dir, advise(err, s.dir))
	}
	s.etcd = etcd
	s.ending.of(etcd.Server)
	if s.member != nil {
		s.front.serve(etcd)
		return s.awaitMember(ctx)
	}
	return s.awaitReady(ctx)
}

// removeCopies removes the copies of the database that a process was making smaller when it was
// killed. etcd leaves them, each as large as the used part of the database.
func removeCopies(dir string) error {
	snap := filepath.Join(dir, "member", "snap")
	// A new directory has none.
	entries, _ := os.ReadDir(snap)
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "db.tmp.") {
			continue
		}
		if err := os.Remove(filepath.Join(snap, e.Name())); err != nil {
			return fmt.Errorf("data directory: a copy of the database that was not completed: %w", err)
		}
	}
	return nil
}

// awaitReady waits until etcd serves.
func (s *Server) awaitReady(ctx context.Context) error {
	timer := time.NewTimer(startTimeout)
	defer timer.Stop()
	select {
	case <-s.etcd.Server.ReadyNotify():
		return nil
	case <-s.failure.happened:
		return s.ended(s.failure.err)
	case err := <-s.etcd.Err():
		return s.ended(err)
	case <-timer.C:
		return fmt.Errorf("etcd in %s: not ready within %s", s.dir, startTimeout)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// awaitEnd delivers the error that ends etcd.
func (s *Server) awaitEnd(ctx context.Context) {
	select {
	case <-s.failure.happened:
		s.errors <- s.ended(s.failure.err)
	case err := <-s.etcd.Err():
		s.errors <- s.stopped(err)
	case <-s.etcd.Server.StopNotify():
		s.errors <- s.ended(errRemoved)
	case <-ctx.Done():
	}
}

// stopped returns the error of an etcd that has stopped with err. A member that the others have removed stops by
// itself, and the part of it that notices first reports only that it is stopping.
func (s *Server) stopped(err error) error {
	if failed := s.failure.get(); failed != nil {
		return s.ended(failed)
	}
	select {
	case <-s.etcd.Server.StoppingNotify():
		if s.member != nil {
			return s.ended(errRemoved)
		}
	default:
	}
	return s.ended(err)
}

// ended returns the error with which etcd has stopped by itself, together with advice.
func (s *Server) ended(err error) error {
	return fmt.Errorf("etcd in %s has stopped: %w", s.dir, advise(err, s.dir))
}

// Endpoint returns the address that clients connect to.
func (s *Server) Endpoint() string { return s.etcd.Config().AdvertiseClientUrls[0].String() }

// Err delivers the error that ends etcd, if there is one. After it, etcd does not answer pending
// requests.
func (s *Server) Err() <-chan error { return s.errors }

// Guard returns inner with writes that are refused, with status 503, while the disk is
// nearly full or a majority of the members is missing.
func (s *Server) Guard(inner kubernetes.Interface) kubernetes.Interface {
	return &guarded{Interface: inner, check: func() error { return cmp.Or(s.space.check(), s.Refusal()) }}
}

// Close stops etcd and releases the lock of the directory. After an error of Err, parts of etcd
// may hang: Close then does not stop etcd, and the process should end.
func (s *Server) Close() {
	s.stop()
	s.close()
	s.watchers.Wait()
	if s.etcd != nil && s.failure.get() == nil {
		closeEtcd(s.etcd, s.reads.end)
	}
	// The other members answer a member that hands over its leadership.
	if s.front != nil {
		s.front.stop()
	}
	removeSocketDir(s.sockets)
	s.lock.Close()
}

// closeEtcd stops an etcd when before has returned, and waits for closeTimeout at most.
func closeEtcd(e *embed.Etcd, before func()) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		before()
		select {
		case <-e.Server.ReadyNotify():
		default:
			// Close would wait until etcd is ready.
			e.Server.HardStop()
		}
		e.Close()
	}()
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	select {
	case <-closed:
	case <-timer.C:
	}
}

const (
	// keepAliveTime and keepAliveTimeout bound how soon a client notices that a member does not
	// answer. The client sends a ping when the member was silent for keepAliveTime, and closes the
	// connection after keepAliveTimeout without an answer. gRPC sends pings no more often, and etcd
	// would refuse more.
	keepAliveTime, keepAliveTimeout = 10 * time.Second, 3 * time.Second
	// reconnectAfter is the longest wait between attempts to connect to a member, so that a member
	// that returns is in use again at once, and connectTimeout how long an attempt may take.
	reconnectAfter, connectTimeout = 500 * time.Millisecond, 3 * time.Second
)

// ClientOptions locate the etcd of a client.
type ClientOptions struct {
	// Endpoints are URLs; https URLs use the TLS files.
	Endpoints []string
	// CAFile, CertFile and KeyFile are PEM files; empty for an etcd without TLS.
	CAFile, CertFile, KeyFile string
	// DialTimeout bounds the first connection; 0 means 10 s.
	DialTimeout time.Duration
	// CallTimeout bounds each read and write of keys; 0 means that only their contexts do.
	CallTimeout time.Duration
}

// CommandTimeout is the CallTimeout of commands. A client waits without an end for an etcd that has ended.
const CommandTimeout = 15 * time.Second

// NewClient connects to an etcd and checks that it answers. The error names
// the endpoints.
func NewClient(ctx context.Context, o ClientOptions) (*kubernetes.Client, error) {
	o.DialTimeout = cmp.Or(o.DialTimeout, 10*time.Second)
	cfg := clientv3.Config{
		Endpoints:            o.Endpoints,
		DialTimeout:          o.DialTimeout,
		DialKeepAliveTime:    keepAliveTime,
		DialKeepAliveTimeout: keepAliveTimeout,
		Logger:               zap.NewNop(),
		DialOptions: []grpc.DialOption{
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1 << 30)),
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.5, Jitter: .2, MaxDelay: reconnectAfter},
				MinConnectTimeout: connectTimeout,
			}),
		},
		MaxCallSendMsgSize: 16 << 20,
	}
	if len(o.Endpoints) == 1 && strings.HasPrefix(o.Endpoints[0], "unix:") && o.CallTimeout == 0 {
		// An etcd in this process hangs only when the process hangs. The connection is still usable
		// after that.
		cfg.DialKeepAliveTime = 0
	}
	if o.CAFile != "" || o.CertFile != "" || o.KeyFile != "" {
		tlsInfo := transport.TLSInfo{TrustedCAFile: o.CAFile, CertFile: o.CertFile, KeyFile: o.KeyFile}
		tlsConfig, err := tlsInfo.ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("TLS files for etcd: %w", err)
		}
		cfg.TLS = tlsConfig
	}
	client, err := kubernetes.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("etcd at %v: %w", o.Endpoints, err)
	}
	if o.CallTimeout > 0 {
		client.KV = clientv3.NewKVFromKVClient(bounded{clientv3.RetryKVClient(client.Client), o.CallTimeout}, client.Client)
	}
	ctx, cancel := context.WithTimeout(ctx, o.DialTimeout)
	defer cancel()
	if _, err := client.KV.Get(ctx, "gatehouse-probe", clientv3.WithCountOnly()); err != nil {
		client.Close()
		return nil, fmt.Errorf("etcd at %v does not answer: %w", o.Endpoints, err)
	}
	return client, nil
}

// healthTimeout is how long a healthy etcd may take to answer.
const healthTimeout = 2 * time.Second

// Check returns a health check that fails when etcd does not answer a consistent
// read within two seconds.
func Check(client clientv3.KV) func(*http.Request) error {
	return func(req *http.Request) error {
		ctx, cancel := context.WithTimeout(req.Context(), healthTimeout)
		defer cancel()
		if _, err := client.Get(ctx, "/gatehouse/health"); err != nil {
			return fmt.Errorf("etcd: %w", err)
		}
		return nil
	}
}
