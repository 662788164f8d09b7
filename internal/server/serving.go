package server

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/admission/call"
	"github.com/gatehouse-dev/gatehouse/internal/kit/bounds"
	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
	"github.com/gatehouse-dev/gatehouse/internal/kit/inprocess"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/aggregation"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/certificates"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/connections"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/inflight"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/keys"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/tokens"
	"github.com/gatehouse-dev/gatehouse/internal/server/judging/webhookservices"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/datadir"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/encryption"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/members"
)

// Address has the URL and the credentials to reach a server.
type Address struct {
	// URL is https://HOST:PORT.
	URL string
	// Kubeconfig is the file with the admin's credentials.
	Kubeconfig string
	// Admin is a client configuration with the same credentials.
	Admin *restclient.Config
}

// serving has the certificates, the address and the admin's kubeconfig, which clients need to reach
// the server.
type serving struct {
	// keys are the server's own keys, which are replaced while the server runs (rotation).
	keys atomic.Pointer[keys.PKI]
	// tokens signs and verifies the tokens of service accounts.
	tokens *tokens.Tokens
	info   *genericapiserver.SecureServingInfo
	// loopback is the configuration of the server's clients of itself, which send requests through inside to handler.
	loopback *restclient.Config
	inside   *inprocess.Server
	handler  http.Handler
	address  Address
	// given are the certificates of --tls-cert-file; nil without it.
	given []byte
	// own are the files of keys that are read again when they are replaced, and members the certificate for servers that join.
	own     []interface{ RunOnce(context.Context) error }
	members memberCert
	// port is where the server listens.
	port int
	// connections are the open connections of all clients; nil unless they are to be closed at the end.
	connections *connections.Listener
	// callers bounds the connections of clients that have not authenticated.
	callers *bounds.Listener
	// advertised is the address under which others reach this server; nil when there is
	// none.
	advertised net.IP
	// clientCA verifies the certificates of callers.
	clientCA dynamiccertificates.CAContentProvider
	// proxies configures the proxies that may name a caller in headers; nil for none.
	proxies *authenticatorfactory.RequestHeaderConfig
	// toAggregated is the client certificate of this server for aggregated servers.
	toAggregated *certificates.Pair
}

func (v *serving) pki() *keys.PKI { return v.keys.Load() }

// roots are the PEM certificates with which clients verify the server.
func (v *serving) roots() []byte {
	if v.given != nil {
		return v.given
	}
	return v.pki().CA
}

// reachable is the phase in which the server has an address for its clients, and a client for
// itself.
type reachable struct {
	*opened
	rotation rotation
	serving  *serving
	loopback *loopback
	// admitter lets servers join; nil for a server alone.
	admitter *members.Admitter
}

// newReachable loads or makes the certificates, and writes the kubeconfig.
func newReachable(ctx context.Context, o *opened) (*reachable, error) {
	s, v := o.settings, &serving{port: o.listener.Addr().(*net.TCPAddr).Port}
	var err error
	if v.advertised, err = s.advertised(); err != nil {
		klog.ErrorS(err, "Cannot add this server to the endpoints of the service kubernetes: set --advertise-address")
	}
	r := &reachable{opened: o, serving: v}
	if s.sharesEtcd() {
		if err := datadir.Agree(ctx, o.db.client.KV, s.ownKey("format")); err != nil {
			return nil, err
		}
		r.rotation.shared = &keys.Shared{Etcd: o.db.client.KV, Prefix: path.Join(s.EtcdPrefix, encryption.SharedKeys), Values: o.db.values.TransformerForResource(encryption.Secrets)}
		if s.member != nil {
			r.rotation.shared.RotationKey = RotationKey(s.EtcdPrefix)
		}
	}
	pki, err := r.loadKeys(ctx)
	if err != nil {
		return nil, err
	}
	if v.tokens, err = tokens.New(ctx, s.tokens(), tokens.Own{Key: pki.TokenKey, Public: pki.TokenKeys}); err != nil {
		return nil, err
	}
	certFile, keyFile := pki.ServerCertFile, pki.ServerKeyFile
	if s.TLSCertFile != "" {
		certFile, keyFile = s.TLSCertFile, s.TLSPrivateKeyFile
		if v.given, err = files.Read(certFile, files.Configuration); err != nil {
			return nil, fmt.Errorf("--tls-cert-file: %w", err)
		}
	}
	if err := v.secure(s, o.listener, certFile, keyFile); err != nil {
		return nil, err
	}
	if s.member != nil {
		if err := o.db.embedded.RecordKeys(ctx, o.db.client.KV); err != nil {
			return nil, err
		}
		if r.admitter, err = newAdmitter(s, o.db); err != nil {
			return nil, err
		}
		v.info.SNICerts = append(v.info.SNICerts, &v.members)
		r.rotation.state.Store(&rotationState{pki.Rotation.State(), o.db.trusted})
	}
	if err := v.writeKubeconfig(s, o.db); err != nil {
		return nil, err
	}
	certificates := func() []certificateFile { return s.certificateFiles(v.pki()) }
	o.db.certificates.Store(&certificates)
	r.loopback, err = newLoopback(v.loopback, o.ready, ctx.Done())
	return r, err
}

// advertised returns the address under which others reach this server, or an error if there is
// none.
func (s *settings) advertised() (net.IP, error) {
	if s.AdvertiseAddress != "" {
		return net.ParseIP(s.AdvertiseAddress), nil
	}
	ip, err := utilnet.ResolveBindAddress(net.ParseIP(s.BindAddress))
	if err != nil {
		return nil, fmt.Errorf("address of this host: %w", err)
	}
	return ip, nil
}

// hosts lists the names and addresses at which clients reach this server. Pods use the names of the
// service kubernetes, and the server's own address.
func (s *settings) hosts(advertised net.IP) []string {
	hosts := []string{"localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	if ip := net.ParseIP(s.BindAddress); !ip.IsUnspecified() && !slices.Contains(hosts, ip.String()) {
		hosts = append(hosts, ip.String())
	}
	if name, err := os.Hostname(); err == nil {
		hosts = append(hosts, name)
	}
	hosts = append(hosts, s.serviceIP.String())
	if advertised != nil {
		hosts = append(hosts, advertised.String())
	}
	return hosts
}

// accepting is the listener of a server. It calls begin before the first connection is accepted.
type accepting struct {
	net.Listener
	begin func()
}

// Accept implements net.Listener.
func (l accepting) Accept() (net.Conn, error) {
	l.begin()
	return l.Listener.Accept()
}

// secure sets up TLS, and the server's own client.
func (v *serving) secure(s *settings, listener net.Listener, certFile, keyFile string) error {
	cert, err := certificates.NewPair("serving", certFile, keyFile)
	if err != nil {
		return fmt.Errorf("serving certificate: %w", err)
	}
	clientCA, err := certificates.NewAuthority("client-ca", v.pki().TrustFile)
	if err != nil {
		return fmt.Errorf("client CA: %w", err)
	}
	v.own = append(v.own, clientCA, cert)
	var clients dynamiccertificates.CAContentProvider = clientCA
	if s.ClientCAFile != "" {
		given, err := certificates.NewAuthority("client-ca-file", s.ClientCAFile)
		if err != nil {
			return fmt.Errorf("--client-ca-file: %w", err)
		}
		clients = dynamiccertificates.NewUnionCAContentProvider(clientCA, given)
	}
	if err := v.front(s); err != nil {
		return err
	}
	v.clientCA = clients
	if v.proxies != nil {
		// TLS names these CAs to clients, which then present certificates that the CAs have signed.
		clients = dynamiccertificates.NewUnionCAContentProvider(clients, v.proxies.CAContentProvider)
	}
	if s.EndAtOnce {
		v.connections = connections.New(listener)
		listener = v.connections
	}
	v.callers = bounds.NewListener(listener, anonymous)
	secure := *s.SecureServing
	v.inside = inprocess.NewServer()
	// The requests of the server itself wait until it accepts connections.
	secure.Listener = accepting{inflight.Pace(v.callers), func() { v.inside.Open(v.handler) }}
	if err := secure.ApplyTo(&v.info); err != nil {
		return fmt.Errorf("--tls-*: %w", err)
	}
	v.info.Cert, v.info.ClientCA = cert, clients
	if v.loopback, err = v.info.NewLoopbackClientConfig(rand.Text(), nil); err != nil {
		return fmt.Errorf("loopback client: %w", err)
	}
	v.loopback.QPS, v.loopback.Burst = -1, -1
	v.loopback.TLSClientConfig, v.loopback.Transport = restclient.TLSClientConfig{}, v.inside
	v.loopback.ContentType = runtime.ContentTypeProtobuf
	v.loopback.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return nil
}

// front sets up the client certificate for aggregated servers, and the proxies that this server
// trusts.
func (v *serving) front(s *settings) error {
	var err error
	if v.proxies, err = s.proxies.ToAuthenticationRequestHeaderConfig(); err != nil {
		return fmt.Errorf("--requestheader-client-ca-file: %w", err)
	}
	if v.proxies != nil {
		if v.proxies.CAContentProvider, err = certificates.NewAuthority("request-header", s.proxies.ClientCAFile); err != nil {
			return fmt.Errorf("--requestheader-client-ca-file: %w", err)
		}
	}
	certFile, keyFile := s.ProxyClientCertFile, s.ProxyClientKeyFile
	if certFile == "" {
		certFile, keyFile = v.pki().FrontProxyCertFile, v.pki().FrontProxyKeyFile
		own := s.proxies
		own.ClientCAFile = v.pki().FrontProxyCAFile
		own.AllowedNames = append(slices.Clone(own.AllowedNames), keys.FrontProxyName)
		trusted, err := own.ToAuthenticationRequestHeaderConfig()
		if err != nil {
			return fmt.Errorf("CA of the certificate for aggregated servers: %w", err)
		}
		authority, err := certificates.NewAuthority("front-proxy", own.ClientCAFile)
		if err != nil {
			return fmt.Errorf("CA of the certificate for aggregated servers: %w", err)
		}
		trusted.CAContentProvider = authority
		v.own = append(v.own, authority)
		if v.proxies != nil {
			trusted.CAContentProvider = dynamiccertificates.NewUnionCAContentProvider(trusted.CAContentProvider, v.proxies.CAContentProvider)
			if len(s.proxies.AllowedNames) == 0 {
				trusted.AllowedClientNames = v.proxies.AllowedClientNames
			}
		}
		v.proxies = trusted
	}
	if v.toAggregated, err = certificates.NewPair("aggregator-proxy-cert", certFile, keyFile); err != nil {
		return fmt.Errorf("certificate for aggregated servers: %w", err)
	}
	v.own = append(v.own, v.toAggregated)
	return nil
}

// self is the HOST:PORT at which the server reaches itself.
func (v *serving) self() string { return strings.TrimPrefix(v.loopback.Host, "https://") }

// announced is the URL at which other servers reach this one.
func (v *serving) announced(s *settings) string {
	if net.ParseIP(s.BindAddress).IsUnspecified() && v.advertised != nil {
		return "https://" + net.JoinHostPort(v.advertised.String(), strconv.Itoa(v.port))
	}
	return v.address.URL
}

// toPeers reaches the other servers on the same etcd. This server presents itself to them as a
// proxy that names the user in headers.
type toPeers struct{ serving *serving }

// RoundTrip implements http.RoundTripper. Requests to other servers are rare: no connection is kept, and each trusts
// the current CAs.
func (t toPeers) RoundTrip(req *http.Request) (*http.Response, error) {
	v, trusted := t.serving, x509.NewCertPool()
	trusted.AppendCertsFromPEM(v.pki().CA)
	trusted.AppendCertsFromPEM(v.given)
	return (&http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{
		RootCAs: trusted, MinVersion: tls.VersionTLS12,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.X509KeyPair(v.toAggregated.CurrentCertKeyContent())
			return &pair, err
		},
	}}).RoundTrip(req)
}

// writeKubeconfig writes the credentials of the admin, and records in the data directory the address
// that they are for.
func (v *serving) writeKubeconfig(s *settings, db *database) error {
	host := s.BindAddress
	if net.ParseIP(host).IsUnspecified() {
		host = "127.0.0.1"
	}
	v.address = Address{URL: "https://" + net.JoinHostPort(host, strconv.Itoa(v.port)), Kubeconfig: s.KubeconfigOut}
	var err error
	if v.address.Admin, err = clientcmd.NewDefaultClientConfig(*v.kubeconfig(), nil).ClientConfig(); err != nil {
		return err
	}
	if err := v.saveKubeconfig(s); err != nil || db.embedded == nil {
		return err
	}
	return db.embedded.Serves(v.address.URL)
}

func (v *serving) kubeconfig() *clientcmdapi.Config {
	return v.pki().Kubeconfig(v.address.URL, v.roots())
}

// saveKubeconfig writes the file of the kubeconfig.
func (v *serving) saveKubeconfig(s *settings) error {
	data, err := clientcmd.Write(*v.kubeconfig())
	if err != nil {
		return err
	}
	// A data directory that was checked out with a repository must not choose where the credentials
	// are written.
	if info, err := os.Lstat(s.KubeconfigOut); err == nil && info.Mode()&fs.ModeSymlink != 0 && s.KubeconfigOut == s.defaultKubeconfig() {
		return fmt.Errorf("--data-dir: %s is a link; remove it, or say by --kubeconfig-out where the administrator's kubeconfig goes", s.KubeconfigOut)
	}
	if err := os.MkdirAll(filepath.Dir(s.KubeconfigOut), 0o755); err != nil {
		return fmt.Errorf("--kubeconfig-out: %w", err)
	}
	return s.files().Write(s.KubeconfigOut, data, 0o600)
}

// loopback is the server as a client of itself. Its requests go through admission like all requests
// of clients.
type loopback struct {
	config    *restclient.Config
	client    *kubernetes.Clientset
	informers informers.SharedInformerFactory
	// mapper finds the resources of kinds, including custom ones. The mapper reads discovery when
	// it is first used.
	mapper *restmapper.DeferredDiscoveryRESTMapper
	// reads bounds the server's reads from aggregated servers.
	reads *aggregation.Reads
	// stopped is closed when the server is to end.
	stopped <-chan struct{}
}

// starting is the server's own client until the server is ready. It does not retry when the storage
// has no room for writes: a start would wait for ten seconds, and the server repeats writes that
// failed at its start later.
type starting struct {
	http.RoundTripper
	ready <-chan struct{}
}

// RoundTrip implements http.RoundTripper.
func (s starting) RoundTrip(req *http.Request) (*http.Response, error) {
	response, err := s.RoundTripper.RoundTrip(req)
	if err != nil || response.StatusCode != http.StatusServiceUnavailable {
		return response, err
	}
	select {
	case <-s.ready:
	default:
		response.Header.Del("Retry-After")
	}
	return response, nil
}

func newLoopback(config *restclient.Config, ready, stopped <-chan struct{}) (*loopback, error) {
	reads := &aggregation.Reads{}
	config.Wrap(reads.Wrap)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return starting{next, ready} })
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &loopback{
		reads:  reads,
		config: config, client: client, informers: informers.NewSharedInformerFactory(client, 0), stopped: stopped,
		mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery())),
	}, nil
}

// services returns the resolver that finds the webhooks behind services.
func (l *loopback) services(s *settings) call.Resolver {
	return s.addresses.Before(webhookservices.Resolver(l.informers, l.stopped))
}
