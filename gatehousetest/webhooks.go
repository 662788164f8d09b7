package gatehousetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// webhookServer serves the webhooks of a test.
type webhookServer struct {
	url    string
	bundle []byte
	close  func()
	// except are services, as NAMESPACE/NAME, with webhooks of another program.
	except []string
}

func serveWebhooks(handler http.Handler) (*webhookServer, error) {
	certificate, bundle, err := selfSigned()
	if err != nil {
		return nil, fmt.Errorf("certificate of the webhooks: %w", err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{*certificate}, NextProtos: []string{"h2", "http/1.1"}})
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	return &webhookServer{
		url: "https://" + listener.Addr().String(), bundle: bundle,
		close: func() {
			server.Close()
			<-done
		},
	}, nil
}

// selfSigned generates a certificate for loopback addresses and names, and the PEM bundle that verifies it.
func selfSigned(names ...string) (*tls.Certificate, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "gatehousetest"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true, IsCA: true,
		DNSNames: append([]string{"localhost"}, names...), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// redirect changes the webhooks of an object to the address of the server.
func (s *webhookServer) redirect(obj *unstructured.Unstructured) error {
	switch kind := obj.GroupVersionKind(); {
	case isWebhookConfiguration(obj):
		hooks, _, err := unstructured.NestedSlice(obj.Object, "webhooks")
		if err != nil {
			return fmt.Errorf("%s: %w", describe(obj), err)
		}
		for i := range hooks {
			hook, ok := hooks[i].(map[string]any)
			if !ok {
				return fmt.Errorf("%s: webhook %d is not an object", describe(obj), i+1)
			}
			config, _, err := unstructured.NestedMap(hook, "clientConfig")
			if err != nil {
				return fmt.Errorf("%s, webhook %d: %w", describe(obj), i+1, err)
			}
			if hook["clientConfig"], err = s.clientConfig(config); err != nil {
				return fmt.Errorf("%s, webhook %d: %w", describe(obj), i+1, err)
			}
		}
		return unstructured.SetNestedSlice(obj.Object, hooks, "webhooks")
	case kind.Kind == definitionKind:
		path := []string{"spec", "conversion", "webhook", "clientConfig"}
		config, found, err := unstructured.NestedMap(obj.Object, path...)
		if err != nil || !found {
			return err
		}
		if config, err = s.clientConfig(config); err != nil {
			return fmt.Errorf("%s: %w", describe(obj), err)
		}
		return unstructured.SetNestedMap(obj.Object, config, path...)
	}
	return nil
}

// clientConfig returns a clientConfig with the same path on the server.
func (s *webhookServer) clientConfig(config map[string]any) (map[string]any, error) {
	if service, found, err := unstructured.NestedMap(config, "service"); err != nil {
		return nil, err
	} else if found && slices.Contains(s.except, fmt.Sprintf("%v/%v", service["namespace"], service["name"])) {
		return config, nil
	}
	path, _, err := unstructured.NestedString(config, "service", "path")
	if err != nil {
		return nil, err
	}
	if text, _, _ := unstructured.NestedString(config, "url"); text != "" {
		u, err := url.Parse(text)
		if err != nil {
			return nil, err
		}
		path = u.Path
	}
	return map[string]any{"url": s.url + path, "caBundle": base64.StdEncoding.EncodeToString(s.bundle)}, nil
}
