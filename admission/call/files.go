package call

import (
	"crypto/tls"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
)

// stamp identifies the state of a file, to detect changes.
type stamp struct {
	modified time.Time
	size     int64
}

func stampOf(path string) (stamp, error) {
	info, err := os.Stat(path)
	if err != nil {
		return stamp{}, err
	}
	return stamp{info.ModTime(), info.Size()}, nil
}

// certificateFiles are the files of a client certificate and its key. They are read again when they
// change. It is safe for concurrent use.
type certificateFiles struct {
	certFile, keyFile string
	current           atomic.Pointer[tls.Certificate]
	mu                struct {
		sync.Mutex
		cert, key stamp
	}
}

// newCertificateFiles reads the files for the first time.
func newCertificateFiles(certFile, keyFile string) (*certificateFiles, error) {
	f := &certificateFiles{certFile: certFile, keyFile: keyFile}
	f.mu.cert, _ = stampOf(certFile)
	f.mu.key, _ = stampOf(keyFile)
	pair, err := readPair(certFile, keyFile)
	if err != nil {
		return nil, err
	}
	f.current.Store(&pair)
	return f, nil
}

// readPair reads a certificate and its key.
func readPair(certFile, keyFile string) (tls.Certificate, error) {
	cert, err := files.Read(certFile, files.Configuration)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := files.Read(keyFile, files.Configuration)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(cert, key)
}

// refresh reads the files if they changed, and reports whether the certificate changed. While the
// two files do not match, the previous certificate stays in use.
func (f *certificateFiles) refresh() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	cert, err := stampOf(f.certFile)
	if err != nil {
		return false
	}
	key, err := stampOf(f.keyFile)
	if err != nil || cert == f.mu.cert && key == f.mu.key {
		return false
	}
	f.mu.cert, f.mu.key = cert, key
	pair, err := readPair(f.certFile, f.keyFile)
	if err != nil {
		return false
	}
	f.current.Store(&pair)
	return true
}

func (f *certificateFiles) get(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return f.current.Load(), nil
}

// tokenFile is a file with a bearer token. It is read again when it changes. It is safe for
// concurrent use.
type tokenFile struct {
	path string
	mu   struct {
		sync.Mutex
		stamp stamp
		token string
	}
}

// read returns the token. While the file cannot be read, it returns the previous token.
func (f *tokenFile) read() (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := stampOf(f.path)
	if err == nil && s == f.mu.stamp {
		return f.mu.token, nil
	}
	var data []byte
	if err == nil {
		data, err = files.Read(f.path, files.Configuration)
	}
	if err != nil {
		if f.mu.token != "" {
			return f.mu.token, nil
		}
		return "", err
	}
	f.mu.stamp, f.mu.token = s, strings.TrimSpace(string(data))
	return f.mu.token, nil
}
