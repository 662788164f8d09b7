package agent

import (
	"crypto/rand"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
	"github.com/gatehouse-dev/gatehouse/internal/kit/selfsigned"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/traces/v1alpha1"
)

// TokenFile is the file with the API server's token, in the directory of the credentials.
const TokenFile = "audit-token"

// minToken is the minimum length of the token, in characters.
const minToken = 20

// certificateLife is the validity of the certificate that EnsureCredentials creates.
const certificateLife = 5 * 365 * 24 * time.Hour

// Service is the name of the service in front of an Agent.
type Service struct{ Namespace, Name string }

// ParseService parses NAMESPACE/NAME.
func ParseService(text string) (Service, error) {
	namespace, name, ok := strings.Cut(text, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return Service{}, fmt.Errorf("%q is not of the form NAMESPACE/NAME", text)
	}
	return Service{namespace, name}, nil
}

// host returns the DNS name under which the API server connects to the service.
func (s Service) host() string { return s.Name + "." + s.Namespace + ".svc" }

// EnsureCredentials creates the files of the credentials in a directory, unless they exist: the certificate of the
// service, its key, its CA, and the token of the API server. It reports whether it created them.
func EnsureCredentials(dir string, s Service) (made bool, err error) {
	var there, missing []string
	for _, name := range []string{selfsigned.CertificateFile, selfsigned.KeyFile, selfsigned.AuthorityFile, TokenFile} {
		switch _, err := os.Stat(filepath.Join(dir, name)); {
		case err == nil:
			there = append(there, name)
		case errors.Is(err, fs.ErrNotExist):
			missing = append(missing, name)
		default:
			return false, err
		}
	}
	if len(missing) == 0 {
		return false, nil
	}
	if len(there) > 0 {
		return false, fmt.Errorf("%s has %s and not %s: add the files, or remove the directory, and new ones are made", dir, strings.Join(there, ", "), strings.Join(missing, ", "))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return false, err
	}
	if _, err := selfsigned.WriteFor(dir, certificateLife, s.host(), s.host()+".cluster.local", "localhost", "127.0.0.1"); err != nil {
		return false, err
	}
	return true, os.WriteFile(filepath.Join(dir, TokenFile), []byte(rand.Text()+"\n"), 0o600)
}

// WebhookKubeconfig returns the file for kube-apiserver's --audit-webhook-config-file, which connects to the Agent at
// an address, HOST:PORT.
func WebhookKubeconfig(dir, address string, s Service) ([]byte, error) {
	if host, port, err := net.SplitHostPort(address); err != nil || host == "" || port == "" {
		return nil, fmt.Errorf("%q is not of the form HOST:PORT", address)
	}
	authority, err := files.Read(filepath.Join(dir, selfsigned.AuthorityFile), files.Configuration)
	if err != nil {
		return nil, err
	}
	token, err := files.Read(filepath.Join(dir, TokenFile), files.Configuration)
	if err != nil {
		return nil, err
	}
	const name = "gatehouse-agent"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: "https://" + address + Path, CertificateAuthorityData: authority, TLSServerName: s.host()}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: strings.TrimSpace(string(token))}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	return clientcmd.Write(*config)
}

// APIService returns the manifest by which the cluster proxies requests for traces to the service.
func APIService(dir string, s Service) (string, error) {
	authority, err := files.Read(filepath.Join(dir, selfsigned.AuthorityFile), files.Configuration)
	if err != nil {
		return "", err
	}
	gv := v1alpha1.SchemeGroupVersion
	return fmt.Sprintf(`apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata:
  name: %s.%s
spec:
  group: %s
  version: %s
  groupPriorityMinimum: 1000
  versionPriority: 10
  service: {namespace: %s, name: %s, port: 443}
  caBundle: %s
`, gv.Version, gv.Group, gv.Group, gv.Version, s.Namespace, s.Name, base64.StdEncoding.EncodeToString(authority)), nil
}

// rbac has the rights of an Agent, and a role for readers of traces.
//
//go:embed rbac.yaml
var rbac string

// RBAC returns the rights that an Agent needs, as manifests.
func RBAC(s Service) string {
	return strings.NewReplacer("NAMESPACE", s.Namespace, "NAME", s.Name).Replace(rbac)
}
