package server

import (
	"context"
	"path/filepath"
	"time"

	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/keys"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/members"
)

const (
	// expiresSoon is how long before its end a certificate is named in the log and in 'gatehouse cluster status'.
	expiresSoon = 30 * 24 * time.Hour
	// lookForExpired is how often the log names certificates that expire soon.
	lookForExpired = 24 * time.Hour
)

// certificateFile is a file with certificates that the server presents or trusts.
type certificateFile struct {
	// use is the label of the metric.
	use string
	// flag names the file; empty for a file that the server has made.
	flag, file string
	// authority reports whether a restart does not renew a certificate that the server has made.
	authority bool
}

// certificateFiles lists the files with certificates of the server.
func (s *settings) certificateFiles(pki *keys.PKI) (list []certificateFile) {
	add := func(use, flag, given, made string) {
		switch {
		case given != "":
			list = append(list, certificateFile{use: use, flag: flag, file: given})
		case made != "":
			list = append(list, certificateFile{use: use, file: made, authority: made == pki.CAFile || made == pki.FrontProxyCAFile})
		}
	}
	add("serving", "--tls-cert-file", s.TLSCertFile, pki.ServerCertFile)
	for _, pair := range s.SecureServing.SNICertKeys {
		add("serving", "--tls-sni-cert-key", pair.CertFile, "")
	}
	add("authority", "", "", pki.CAFile)
	add("administrator", "", "", filepath.Join(s.pkiDir(), "admin.crt"))
	add("clients", "--client-ca-file", s.ClientCAFile, "")
	add("aggregation", "--proxy-client-cert-file", s.ProxyClientCertFile, pki.FrontProxyCertFile)
	add("aggregation-authority", "--requestheader-client-ca-file", s.RequestHeader.ClientCAFile, pki.FrontProxyCAFile)
	add("etcd", "--etcd-certfile", s.EtcdCertFile, "")
	add("etcd-authority", "--etcd-cafile", s.EtcdCAFile, "")
	if s.member != nil {
		peers := s.peers()
		add("members", "--peer-cert-file", s.PeerCertFile, peers.CertFile)
		add("members-authority", "--peer-trusted-ca-file", s.PeerTrustedCAFile, peers.CAFile)
	}
	return list
}

// expires returns when the first certificate of a file expires.
func (c *certificateFile) expires() (first time.Time, ok bool) {
	data, err := files.Read(c.file, files.Configuration)
	if err != nil {
		return time.Time{}, false
	}
	return firstExpiration(data)
}

// expiring lists the certificates that expire soon, or have expired.
func expiring(list []certificateFile, now time.Time) (soon []members.Certificate) {
	for _, c := range list {
		until, ok := c.expires()
		if !ok || until.Sub(now) > expiresSoon {
			continue
		}
		advice := "restart the server, which renews it"
		switch {
		case c.flag != "":
			advice = "replace the file"
		case c.authority:
			advice = "all certificates of the server need a new CA"
		case c.use == "members" || c.use == "members-authority":
			advice = "the server renews it by itself"
		}
		soon = append(soon, members.Certificate{Use: c.use, Flag: c.flag, File: c.file, Expires: until, Advice: advice})
	}
	return soon
}

// warnOfExpirations logs certificates that expire soon, until ctx ends.
func (r *reachable) warnOfExpirations(ctx context.Context) {
	tick := time.NewTicker(lookForExpired)
	defer tick.Stop()
	for {
		now := time.Now()
		for _, c := range expiring(r.settings.certificateFiles(r.serving.pki()), now) {
			klog.Warning(c.Text(now))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
