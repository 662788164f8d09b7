package peer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// readyTimeout is the time in which a server must become ready.
const readyTimeout = 2 * time.Minute

// Kind is the kind of a server, and how it stores its data.
type Kind string

const (
	// KubeAPIServer is upstream's server on an etcd process.
	KubeAPIServer Kind = "kube-apiserver"
	// Gatehouse is gatehouse serve on an etcd process.
	Gatehouse Kind = "gatehouse"
	// GatehouseEmbedded is gatehouse serve with an embedded etcd.
	GatehouseEmbedded Kind = "gatehouse, etcd embedded"
	// GatehouseUncontrolled is GatehouseEmbedded without controllers, like kube-apiserver.
	GatehouseUncontrolled Kind = "gatehouse, etcd embedded, no controllers"
	// GatehouseOther is GatehouseEmbedded of another build: the program $GATEHOUSE_OTHER.
	GatehouseOther Kind = "gatehouse, etcd embedded, other build"
	// GatehouseUntraced is Gatehouse without the traces of requests.
	GatehouseUntraced Kind = "gatehouse, no traces"
)

// embedded reports whether etcd is inside the server.
func (k Kind) embedded() bool {
	return k == GatehouseEmbedded || k == GatehouseUncontrolled || k == GatehouseOther
}

// Server is a running server.
type Server struct {
	Kind Kind
	// Dir contains the files of the server; a gatehouse keeps its data in the directory data below it.
	Dir string
	// Config has the credentials of the administrator, without a limit on the rate of requests.
	Config *rest.Config
	// As is the user that loads impersonate; empty means that they run as the administrator.
	As string
	// Ready is the time from the start of the first process, etcd included, until /readyz answered 200.
	Ready time.Duration
	// Process is the server; Etcd is its etcd, nil if etcd is embedded or belongs to another server.
	Process *Process
	Etcd    *Process
	// Helpers are other processes that belong to the server. They are stopped before it.
	Helpers []*Process
	// etcdURL is the URL of the etcd, empty if it is embedded.
	etcdURL string
	// flags are additional flags of the server.
	flags []string
}

// Start starts a server with all its data in dir, and waits until it is ready. A second start in the same directory
// uses the data of the first. flags are added to the flags of the kind.
func Start(ctx context.Context, b Binaries, kind Kind, dir string, flags ...string) (*Server, error) {
	return start(ctx, b, kind, dir, "", flags)
}

// StartOn starts a server on a running etcd, such as the one of StartMembers.
func StartOn(ctx context.Context, b Binaries, kind Kind, dir, etcdURL string, flags ...string) (*Server, error) {
	return start(ctx, b, kind, dir, etcdURL, flags)
}

// Join starts another server of the same kind on the same etcd, which must not be embedded. Stop it before the first
// server. It gets the flags of the first server, and flags.
func (s *Server) Join(ctx context.Context, b Binaries, dir string, flags ...string) (*Server, error) {
	return s.JoinAs(ctx, b, s.Kind, dir, slices.Concat(s.flags, flags)...)
}

// JoinAs starts a server of any kind on the same etcd, which must not be embedded. It does not get the flags of the
// first server.
func (s *Server) JoinAs(ctx context.Context, b Binaries, kind Kind, dir string, flags ...string) (*Server, error) {
	if s.etcdURL == "" {
		return nil, fmt.Errorf("the etcd of %s is embedded", s.Kind)
	}
	return start(ctx, b, kind, dir, s.etcdURL, flags)
}

func start(ctx context.Context, b Binaries, kind Kind, dir, etcdURL string, flags []string) (*Server, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	creds, err := newCredentials(dir)
	if err != nil {
		return nil, fmt.Errorf("credentials of %s: %w", kind, err)
	}
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	s := &Server{Kind: kind, Dir: dir, etcdURL: etcdURL, flags: flags, Config: &rest.Config{
		Host:            "https://127.0.0.1:" + strconv.Itoa(port),
		BearerToken:     Token,
		TLSClientConfig: rest.TLSClientConfig{CAData: creds.ca},
		QPS:             -1,
	}}
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("not ready within %s", readyTimeout))
	defer cancel()
	began := time.Now()
	if err := s.launch(ctx, b, creds, dir, port); err != nil {
		return nil, errors.Join(fmt.Errorf("starting %s: %w", kind, err), s.Stop())
	}
	if err := s.awaitReady(ctx, creds.ca); err != nil {
		return nil, errors.Join(fmt.Errorf("starting %s: %w", kind, err), s.Stop())
	}
	s.Ready = time.Since(began)
	return s, nil
}

func (s *Server) launch(ctx context.Context, b Binaries, creds *credentials, dir string, port int) error {
	flags := []string{
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port),
		"--tls-cert-file=" + creds.cert, "--tls-private-key-file=" + creds.key,
		"--token-auth-file=" + creds.tokens, "--authorization-mode=RBAC",
		"--service-cluster-ip-range=10.0.0.0/24",
	}
	if !s.Kind.embedded() && s.etcdURL == "" {
		etcd, line, err := launchAndRead(ctx, dir, b.Etcd, "-data-dir", filepath.Join(dir, "etcd"))
		if err != nil {
			return err
		}
		s.Etcd = etcd
		_, s.etcdURL, _ = strings.Cut(line, "ready at ")
	}
	if s.etcdURL != "" {
		flags = append(flags, "--etcd-servers="+s.etcdURL)
	}
	program := b.Gatehouse
	if s.Kind == GatehouseOther {
		if program = os.Getenv("GATEHOUSE_OTHER"); program == "" {
			return errors.New("GATEHOUSE_OTHER names no program")
		}
	}
	if s.Kind == KubeAPIServer {
		program = b.KubeAPIServer
		flags = append(flags,
			"--cert-dir="+dir,
			// The same as the defaults of gatehouse.
			"--allow-privileged=true",
			"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
			"--service-account-key-file="+creds.serviceAccount,
			"--service-account-signing-key-file="+creds.serviceAccount,
		)
	} else {
		flags = append([]string{"serve", "--data-dir=" + filepath.Join(dir, "data")}, flags...)
	}
	switch s.Kind {
	case GatehouseUntraced:
		flags = append(flags, "--admission-trace-bytes=0")
	case GatehouseUncontrolled:
		flags = append(flags, "--controllers=-*")
	}
	var err error
	s.Process, err = launch(dir, program, nil, append(flags, s.flags...)...)
	return err
}

// awaitReady polls /readyz until it answers 200.
func (s *Server) awaitReady(ctx context.Context, ca []byte) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	defer client.CloseIdleConnections()
	ask := func() error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Config.Host+"/readyz", nil)
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+Token)
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("/readyz answers %s", resp.Status)
		}
		return nil
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-s.Process.exited:
			return s.Process.failure()
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

// EtcdURL returns the URL of the etcd of the server, empty if it is embedded.
func (s *Server) EtcdURL() string { return s.etcdURL }

// RSS returns the resident memory of the server and its etcd, in bytes.
func (s *Server) RSS() (server, etcd int64, err error) { return s.memory((*Process).RSS) }

// Anonymous returns the part of RSS without pages of files. The number of resident pages of a program's file depends
// on the kernel and on earlier processes, so comparisons of servers use this part.
func (s *Server) Anonymous() (server, etcd int64, err error) { return s.memory((*Process).Anonymous) }

func (s *Server) memory(of func(*Process) (int64, error)) (server, etcd int64, err error) {
	if server, err = of(s.Process); err != nil || s.Etcd == nil {
		return server, 0, err
	}
	etcd, err = of(s.Etcd)
	return server, etcd, err
}

// Processes returns the helpers, the server and its etcd.
func (s *Server) Processes() []*Process {
	return slices.DeleteFunc(append(slices.Clone(s.Helpers), s.Process, s.Etcd), func(p *Process) bool { return p == nil })
}

// Memory returns the resident memory of all processes, in bytes.
func (s *Server) Memory() (int64, error) {
	var sum int64
	for _, p := range s.Processes() {
		one, err := p.RSS()
		if err != nil {
			return 0, err
		}
		sum += one
	}
	return sum, nil
}

// Stop stops the helpers, the server and then its etcd.
func (s *Server) Stop() error {
	var errs []error
	for _, p := range s.Processes() {
		errs = append(errs, p.Stop())
	}
	return errors.Join(errs...)
}

// FreePort returns an unused port of this machine.
func FreePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
