package peer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
)

// Webhook is a running webhook process; see the command webhook for the paths.
type Webhook struct {
	*Process
	// URL is its address without a path, CA its CA certificate in PEM.
	URL string
	CA  []byte
}

// StartWebhook starts a webhook process with its certificate in dir.
func StartWebhook(ctx context.Context, b Binaries, dir string) (*Webhook, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	creds, err := newCredentials(dir)
	if err != nil {
		return nil, fmt.Errorf("credentials of the webhook: %w", err)
	}
	p, line, err := launchAndRead(ctx, dir, b.Webhook, "-tls-cert-file", creds.cert, "-tls-private-key-file", creds.key)
	if err != nil {
		return nil, err
	}
	_, url, _ := strings.Cut(line, "ready at ")
	return &Webhook{Process: p, URL: url, CA: creds.ca}, nil
}

// Count returns the number of reviews that the webhook has answered.
func (w *Webhook) Count(ctx context.Context) (int64, error) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.CA)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.URL+"/count", nil)
	if err != nil {
		return 0, err
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("/count answers %s", resp.Status)
	}
	return strconv.ParseInt(string(text), 10, 64)
}
