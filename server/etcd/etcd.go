package etcd

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// startTimeout is how long an embedded etcd may take to serve; replaying a long
// log is what takes time.
const startTimeout = 60 * time.Second

// Server is an embedded etcd.
type Server struct {
	etcd    *embed.Etcd
	lock    *os.File
	sockets *os.File
}

// ErrInUse is wrapped by the error of Start when another process serves the
// same directory.
var ErrInUse = errors.New("in use by another process")

// Start starts an etcd with its data in dir, creating it if need be. It returns
// an error that wraps ErrInUse when another process has the directory, and one
// that names the directory when the data cannot be read.
func Start(ctx context.Context, dir string) (*Server, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	sockets, err := makeSocketDir()
	if err != nil {
		lock.Close()
		return nil, fmt.Errorf("directory of etcd's socket: %w", err)
	}
	s := &Server{lock: lock, sockets: sockets}
	if err := s.start(ctx, dir); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Server) start(ctx context.Context, dir string) error {
	cfg := embed.NewConfig()
	cfg.Name = "gatehouse"
	cfg.Dir = dir
	clientURL := url.URL{Scheme: "unix", Path: filepath.Join(s.sockets.Name(), socketName)}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{clientURL}, []url.URL{clientURL}
	// It has no peers. etcd would listen for them on a socket that is no file, where
	// every user of the machine could take part in the consensus.
	cfg.ListenPeerUrls = nil
	// The advertised peer URL is recorded in the data. It must be the same at
	// every start, and nobody ever dials it: the cluster has one member.
	cfg.AdvertisePeerUrls = []url.URL{{Scheme: "unix", Path: "/gatehouse-peer"}}
	cfg.InitialCluster = cfg.Name + "=" + cfg.AdvertisePeerUrls[0].String()
	// A cluster of one elects itself; waiting for others would only delay it.
	cfg.TickMs, cfg.ElectionMs = 10, 100
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	cfg.LogLevel = "error"
	// Kubernetes objects may be 1.5 MiB in storage; etcd counts the request.
	cfg.MaxRequestBytes = 8 << 20
	cfg.QuotaBackendBytes = 8 << 30
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	etcd, err := startSafely(cfg)
	if err != nil {
		return fmt.Errorf("data directory %s cannot be read by etcd: %w", dir, err)
	}
	s.etcd = etcd
	timer := time.NewTimer(startTimeout)
	defer timer.Stop()
	select {
	case <-etcd.Server.ReadyNotify():
		return nil
	case err := <-etcd.Err():
		return fmt.Errorf("etcd in %s: %w", dir, err)
	case <-timer.C:
		return fmt.Errorf("etcd in %s: not ready within %s", dir, startTimeout)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Endpoint returns the address that clients connect to.
func (s *Server) Endpoint() string { return s.etcd.Config().AdvertiseClientUrls[0].String() }

// Err delivers the error that ends etcd, if one does.
func (s *Server) Err() <-chan error { return s.etcd.Err() }

// Close stops etcd and gives the directory free.
func (s *Server) Close() {
	if s.etcd != nil {
		s.etcd.Close()
	}
	removeSocketDir(s.sockets)
	s.lock.Close()
}

// lockDir takes the lock that makes a second server on the same data fail at
// once. The kernel releases it with the process, however it ends.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("data directory %s is %w", dir, ErrInUse)
		}
		return nil, fmt.Errorf("data directory %s: %w", dir, err)
	}
	return f, nil
}

const (
	// keepAliveTime and keepAliveTimeout say how soon a member that does not answer
	// is found out: it is asked when it was silent for the one, and given up after
	// the other. gRPC does not ask more often, nor would etcd like it.
	keepAliveTime, keepAliveTimeout = 10 * time.Second, 3 * time.Second
	// reconnectAfter is the longest wait between attempts to connect to a member,
	// so that one that returns is in use again at once, and connectTimeout how long
	// an attempt may take.
	reconnectAfter, connectTimeout = 500 * time.Millisecond, 3 * time.Second
)

// ClientOptions say which etcd to talk to.
type ClientOptions struct {
	// Endpoints are URLs; https ones use the TLS files.
	Endpoints []string
	// CAFile, CertFile and KeyFile are PEM files; empty for an etcd without TLS.
	CAFile, CertFile, KeyFile string
	// DialTimeout bounds the first connection; 0 means 10 s.
	DialTimeout time.Duration
}

// NewClient connects to an etcd and checks that it answers. The error names
// the endpoints.
func NewClient(ctx context.Context, o ClientOptions) (*kubernetes.Client, error) {
	if o.DialTimeout == 0 {
		o.DialTimeout = 10 * time.Second
	}
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
	if len(o.Endpoints) == 1 && strings.HasPrefix(o.Endpoints[0], "unix:") {
		// An etcd in this process hangs only when the process does, and then the
		// connection is good still.
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
	ctx, cancel := context.WithTimeout(ctx, o.DialTimeout)
	defer cancel()
	if _, err := client.KV.Get(ctx, "gatehouse-probe", clientv3.WithCountOnly()); err != nil {
		client.Close()
		return nil, fmt.Errorf("etcd at %v does not answer: %w", o.Endpoints, err)
	}
	return client, nil
}
