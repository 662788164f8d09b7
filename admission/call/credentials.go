package call

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
)

// Credentials select the authentication for each webhook. Nil Credentials authenticate to no
// webhook. Credentials are immutable, but the certificate and token files that they name are read
// again when they change (S8.18).
type Credentials struct {
	users map[string]*clientcmdapi.AuthInfo
	// current is the user of the current context; empty means none.
	current string
	// last is the fallback; nil means anonymous calls.
	last *clientcmdapi.AuthInfo
	// inCluster returns the credentials of the pod that runs this process.
	inCluster func() (*rest.Config, error)
}

// LoadCredentials reads the users of a kubeconfig file, its contexts and its current context;
// clusters are ignored (S8.12). Relative file names in the kubeconfig are relative to its directory
// (S8.18). An empty path gives credentials without users. It is an error if the file cannot be read
// or decoded; a server should not start then (S8.19). An error in a user is reported when the user
// is needed (S8.17).
func LoadCredentials(path string) (*Credentials, error) {
	c := &Credentials{inCluster: rest.InClusterConfig}
	if path == "" {
		return c, nil
	}
	config, err := readKubeconfig(path)
	if err != nil {
		return nil, fmt.Errorf("reading webhook credentials from kubeconfig %q: %w", path, err)
	}
	if err := clientcmd.ResolveLocalPaths(config); err != nil {
		return nil, fmt.Errorf("reading webhook credentials from kubeconfig %q: %w", path, err)
	}
	c.users = config.AuthInfos
	if context := config.Contexts[config.CurrentContext]; context != nil && c.users[context.AuthInfo] != nil {
		c.current = context.AuthInfo
	}
	return c, nil
}

// readKubeconfig reads a kubeconfig, and records the file in each user.
func readKubeconfig(path string) (*clientcmdapi.Config, error) {
	data, err := files.Read(path, files.Configuration)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.Load(data)
	if err != nil {
		return nil, files.Shorten(err)
	}
	for _, info := range config.AuthInfos {
		info.LocationOfOrigin = path
	}
	for _, cluster := range config.Clusters {
		cluster.LocationOfOrigin = path
	}
	return config, nil
}

// WithClientCertificate returns a copy of c, which may be nil, that presents a client certificate
// to the webhooks for which c has no user (S12.13). It is an error unless the files contain a
// certificate and its key.
func (c *Credentials) WithClientCertificate(certFile, keyFile string) (*Credentials, error) {
	if _, err := readPair(certFile, keyFile); err != nil {
		return nil, fmt.Errorf("reading the client certificate for webhooks: %w", err)
	}
	out := Credentials{inCluster: rest.InClusterConfig}
	if c != nil {
		out = *c
		out.users = maps.Clone(c.users)
	}
	out.last = &clientcmdapi.AuthInfo{ClientCertificate: certFile, ClientKey: keyFile}
	return &out, nil
}

// identity is the user that Credentials select for a target. The zero identity is anonymous.
type identity struct {
	// name is unique among the identities of the same Credentials.
	name string
	info *clientcmdapi.AuthInfo
	pod  *rest.Config
}

// lookup returns the user for a webhook's target, in the order of S8.14, S8.16 and S8.16a.
func (c *Credentials) lookup(cc *registration.ClientConfig, u *url.URL) identity {
	if c == nil {
		return identity{}
	}
	host, port := u.Hostname(), u.Port()
	if port == "" {
		port = "443"
	}
	if len(c.users) > 0 {
		if name, info := c.named(cc, u, host, port); info != nil {
			return user(name, info)
		}
	}
	if host == "kubernetes.default.svc" && port == "443" && c.inCluster != nil {
		if pod, err := c.inCluster(); err == nil {
			return identity{name: "pod", pod: pod}
		}
	}
	if info := c.users["*"]; info != nil {
		return user("*", info)
	}
	if c.current != "" {
		return user(c.current, c.users[c.current])
	}
	if c.last != nil {
		return identity{name: "client certificate", info: c.last}
	}
	return identity{}
}

func user(name string, info *clientcmdapi.AuthInfo) identity {
	return identity{name: "user " + name, info: info}
}

// named finds a user named after the target, by URL, host and port, or host.
func (c *Credentials) named(cc *registration.ClientConfig, u *url.URL, host, port string) (string, *clientcmdapi.AuthInfo) {
	target := net.JoinHostPort(host, port)
	if cc.Service == nil {
		names := []string{cc.URL, "https://" + u.Host, "https://" + target}
		if port == "443" {
			names = append(names, "https://"+host)
		}
		for _, name := range names {
			if info := c.users[name]; info != nil {
				return name, info
			}
		}
	}
	if name, info := c.find(target); info != nil {
		return name, info
	}
	if port == "443" || cc.Service != nil {
		return c.find(host)
	}
	return "", nil
}

// find finds a target by its own name, then by wildcards, the longest first.
func (c *Credentials) find(target string) (string, *clientcmdapi.AuthInfo) {
	if info := c.users[target]; info != nil {
		return target, info
	}
	for rest := target; ; {
		dot := strings.IndexByte(rest, '.')
		if dot < 0 {
			return "", nil
		}
		rest = rest[dot+1:]
		if info := c.users["*."+rest]; info != nil {
			return "*." + rest, info
		}
	}
}

// secretFiles are the files of an identity that are read again when they change.
type secretFiles struct{ token, cert, key string }

// config returns the client configuration for the identity, and the files with the remaining
// credentials.
func (id *identity) config() (*rest.Config, secretFiles, error) {
	switch {
	case id.pod != nil:
		cfg := rest.CopyConfig(id.pod)
		secret := secretFiles{token: cfg.BearerTokenFile}
		if secret.token != "" {
			cfg.BearerToken, cfg.BearerTokenFile = "", ""
		}
		return cfg, secret, nil
	case id.info == nil:
		return &rest.Config{}, secretFiles{}, nil
	}
	info := id.info
	if info.AuthProvider != nil {
		return nil, secretFiles{}, errors.New("auth provider not supported")
	}
	secret := secretFiles{}
	cfg := &rest.Config{
		BearerToken: info.Token,
		Username:    info.Username,
		Password:    info.Password,
		Impersonate: rest.ImpersonationConfig{
			UserName: info.Impersonate,
			UID:      info.ImpersonateUID,
			Groups:   info.ImpersonateGroups,
			Extra:    info.ImpersonateUserExtra,
		},
	}
	if info.Token == "" {
		secret.token = info.TokenFile
	}
	if (info.Token != "" || secret.token != "") && (info.Username != "" || info.Password != "") {
		return nil, secretFiles{}, errors.New("username/password or bearer token may be set, but not both")
	}
	switch {
	case len(info.ClientCertificateData) > 0 || len(info.ClientKeyData) > 0:
		cfg.CertFile, cfg.CertData = info.ClientCertificate, info.ClientCertificateData
		cfg.KeyFile, cfg.KeyData = info.ClientKey, info.ClientKeyData
		for _, file := range []struct {
			path string
			data []byte
		}{{cfg.CertFile, cfg.CertData}, {cfg.KeyFile, cfg.KeyData}} {
			// client-go reads the file itself.
			if file.path != "" && len(file.data) == 0 {
				if err := files.Check(file.path, files.Configuration); err != nil {
					return nil, secretFiles{}, err
				}
			}
		}
	case info.ClientCertificate != "" || info.ClientKey != "":
		secret.cert, secret.key = info.ClientCertificate, info.ClientKey
	}
	// Fixed credentials take precedence over an exec plugin, as in kubectl.
	if info.Exec != nil && secret == (secretFiles{}) {
		cfg.ExecProvider = info.Exec.DeepCopy()
		cfg.ExecProvider.StdinUnavailable = true
	}
	return cfg, secret, nil
}
