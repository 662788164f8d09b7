package members

import (
	"bytes"
	"context"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/keys"
)

const (
	// joinTimeout bounds how long a server waits until it may join, while the others are starting or another server
	// joins.
	joinTimeout = 2 * time.Minute
	// askTimeout bounds one attempt, and askAgain is the time between two attempts.
	askTimeout, askAgain = 15 * time.Second, 250 * time.Millisecond
	// maxToken bounds the file of a token, in bytes.
	maxToken = 4096
)

// Join configures how a server joins.
type Join struct {
	// URL is the URL of a server of the cluster; TokenFile has the token.
	URL, TokenFile string
	State          *State
	// Peers has the key that identifies this server while it joins, and takes its certificate. Given means that the
	// administrator has made another certificate.
	Peers *keys.Peers
	Given bool
	// Judging are the inputs of this server's admission. Different allows the inputs of the other
	// servers to differ.
	Judging   map[string]string
	Different bool
	// Set are the flags that set the values of Judging, by their names in Judging.
	Set map[string][]Flag
}

// CheckURL returns an error for a URL that no server has.
func CheckURL(server string) error {
	u, err := url.Parse(server)
	if err == nil && (u.Scheme != "https" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "") {
		err = errors.New("it must be https://HOST:PORT")
	}
	if err != nil {
		return fmt.Errorf("--join: %q is not the URL of a server: %w", server, err)
	}
	return nil
}

// ReadToken reads the file of a token, which only its owner may be able to read.
func ReadToken(file string) (string, error) {
	data, err := files.Read(file, maxToken)
	if err != nil {
		return "", fmt.Errorf("--join-token-file: %w", err)
	}
	if info, err := os.Stat(file); err == nil && info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("--join-token-file: others may read %s (mode %#o), and join with it: chmod 600 %s", file, info.Mode().Perm(), file)
	}
	return strings.TrimSpace(string(data)), nil
}

// Do repeats the request until the server may join, and returns its members as NAME=URL,NAME=URL,
// including this server.
func (j *Join) Do(ctx context.Context) (joins string, err error) {
	token, err := ReadToken(j.TokenFile)
	if err != nil {
		return "", err
	}
	parts := strings.Split(token, ".")
	if len(parts) != 4 || parts[0] != tokenForm {
		return "", fmt.Errorf("--join-token-file: %s has no token: 'gatehouse cluster token create' makes one", j.TokenFile)
	}
	in := ask{Token: token, Name: j.State.Name, Address: j.State.Address, Judging: j.Judging, Set: j.Set, Different: j.Different}
	if in.Request, err = j.Peers.Request(); err != nil {
		return "", err
	}
	body, err := json.Marshal(in)
	if err != nil {
		return "", err
	}
	client := &http.Client{
		Timeout: askTimeout, Transport: &http.Transport{DisableKeepAlives: true, Proxy: http.ProxyFromEnvironment, TLSClientConfig: pinned(parts[3])},
		// Without redirects, no other server gets the token.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	var before error
	for {
		out, again, err := j.try(ctx, client, body)
		if err == nil {
			if !j.Given {
				err = j.Peers.Accept(out.Cert, out.Trust)
			}
			return out.Joins, err
		}
		err = fmt.Errorf("--join %s: %w", j.URL, err)
		switch {
		case ctx.Err() != nil && before != nil:
			// The reason for the wait is more informative.
			return "", before
		case !again:
			return "", err
		case before == nil || err.Error() != before.Error():
			klog.Warningf("Cannot join yet, and tries again: %v", err)
		}
		before = err
		select {
		case <-time.After(askAgain):
		case <-ctx.Done():
			return "", err
		}
	}
}

// try sends one request, and reports whether a failure may be temporary.
func (j *Join) try(ctx context.Context, client *http.Client, body []byte) (out *admission, again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(j.URL, "/")+JoinPath, bytes.NewReader(body))
	if err != nil {
		return nil, false, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := client.Do(req)
	if err != nil {
		return nil, !errors.Is(err, errOtherAuthority), err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(io.LimitReader(res.Body, maxAsk))
	if err != nil {
		return nil, true, err
	}
	switch res.StatusCode {
	case http.StatusOK:
		out = &admission{}
		if err := json.Unmarshal(data, out); err != nil {
			return nil, false, fmt.Errorf("the answer cannot be read: %w", err)
		}
		return out, false, nil
	case http.StatusForbidden, http.StatusNotFound:
		return nil, false, errors.New("the server has no cluster to join: start it with --cluster")
	}
	refused := &refusal{}
	if json.Unmarshal(data, refused) != nil || refused.Message == "" {
		refused.Message = "the server answers " + res.Status
	}
	return nil, res.StatusCode == http.StatusTooManyRequests || res.StatusCode >= 500, refused
}

// errOtherAuthority is the error about a server that the token is not for.
var errOtherAuthority = errors.New("the server does not have the CA that the token names: it is of another cluster, or another machine intercepts the connection")

// pinned trusts servers whose CA has a hash.
func pinned(pin string) *tls.Config {
	return &tls.Config{
		ServerName: ServerName, MinVersion: tls.VersionTLS12,
		// VerifyConnection performs the verification that this skips, with the CA that the server
		// has sent.
		InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			for _, authority := range state.PeerCertificates[1:] {
				sent, err := pinOf(pemOf(authority))
				if err != nil || subtle.ConstantTimeCompare([]byte(sent), []byte(pin)) != 1 {
					continue
				}
				roots, between := x509.NewCertPool(), x509.NewCertPool()
				roots.AddCert(authority)
				for _, other := range state.PeerCertificates[1:] {
					between.AddCert(other)
				}
				if _, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, DNSName: ServerName, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err != nil {
					return fmt.Errorf("%w: %w", errOtherAuthority, err)
				}
				return nil
			}
			return errOtherAuthority
		},
	}
}

func pemOf(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}
