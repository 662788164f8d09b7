package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	certutil "k8s.io/client-go/util/cert"

	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
)

// askPeer bounds how long another member may take to answer.
const askPeer = 2 * time.Second

// asked is another member, and whether it answers at its peer address.
type asked struct {
	Peer
	// answers reports whether a member answers at the address. refusal is the reason why the connection failed after
	// that; nil for none.
	answers bool
	refusal error
}

// askOthers asks the other members with a vote at their peer addresses.
func (s *Server) askOthers(ctx context.Context) []asked {
	var others []asked
	for _, p := range s.Peers() {
		if p.Name != s.member.Name && !p.Joining {
			others = append(others, asked{Peer: p})
		}
	}
	var asking sync.WaitGroup
	for i := range others {
		asking.Go(func() {
			others[i].answers, others[i].refusal = s.member.ask(ctx, others[i].Address, s.etcd.Server.MemberID().String())
		})
	}
	asking.Wait()
	return others
}

// Answers reports whether a member, or another program that speaks TLS, answers at a peer address. A proxy whose member does not
// run accepts a connection and closes it.
func Answers(ctx context.Context, address string) bool {
	ctx, cancel := context.WithTimeout(ctx, askPeer)
	defer cancel()
	// Nothing is sent, and no received data is trusted.
	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", address)
	if err == nil {
		conn.Close()
	}
	return spoke(err)
}

// spoke reports whether the other side of a connection that failed speaks TLS.
func spoke(err error) bool {
	at, isNetwork := errors.AsType[*net.OpError](err)
	_, invalid := errors.AsType[*tls.CertificateVerificationError](err)
	return err == nil || invalid || isNetwork && at.Op == "remote error"
}

// ask connects to another member as etcd does. id is the ID of this member.
func (m *Member) ask(ctx context.Context, address, id string) (answers bool, refusal error) {
	ctx, cancel := context.WithTimeout(ctx, askPeer)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return false, nil
	}
	defer conn.Close()
	own, err := tls.LoadX509KeyPair(m.CertFile, m.KeyFile)
	if err != nil {
		return true, err
	}
	trust, err := certutil.NewPool(m.CAFile)
	if err != nil {
		return true, err
	}
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return conn, nil },
		TLSClientConfig:   &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{own}, RootCAs: trust},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, PeerURL(address)+"/version", nil)
	if err != nil {
		return true, err
	}
	req.Header.Set("X-Server-From", id)
	res, err := client.Do(req)
	if err != nil {
		if at, ok := errors.AsType[*url.Error](err); ok {
			err = at.Err
		}
		return spoke(err), err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return true, errors.New(res.Status)
	}
	return true, nil
}

// describe counts the answering members, and names the silent and the refusing ones, with advice.
func describe(others []asked, expired []string) string {
	var silent, refusing []string
	for _, o := range others {
		switch at := fmt.Sprintf("%s (%s)", o.Name, o.Address); {
		case !o.answers:
			silent = append(silent, at)
		case o.refusal != nil:
			refusing = append(refusing, fmt.Sprintf("%s (%v)", at, o.refusal))
		}
	}
	all := len(others) + 1
	text := fmt.Sprintf("%d of %d members answer, and %d are needed", all-len(silent), all, all/2+1)
	if len(silent) > 0 {
		text += "; start " + strings.Join(silent, ", ")
	}
	if len(refusing) > 0 {
		text += "; the connection fails with " + strings.Join(refusing, ", ")
	}
	if len(refusing) == len(others) && len(expired) == 0 {
		text += "; a member that the cluster has removed joins again with an empty data directory and a new token"
	}
	for _, e := range expired {
		text += "; " + e
	}
	return text
}

// recoverable reports whether no other member answers, so that all of them may be lost.
func recoverable(others []asked) bool {
	return !slices.ContainsFunc(others, func(o asked) bool { return o.answers })
}

// expired names the files of a member whose certificates have expired.
func (m *Member) expired(now time.Time) (list []string) {
	if certs := certificatesIn(m.CertFile); len(certs) > 0 && now.After(certs[0].NotAfter) {
		list = append(list, expiredText("certificate of this member", m.CertFile, certs[0]))
	}
	if certs := certificatesIn(m.CAFile); len(certs) > 0 && !slices.ContainsFunc(certs, func(c *x509.Certificate) bool { return !now.After(c.NotAfter) }) {
		list = append(list, expiredText("certificate authority of the members", m.CAFile, certs[0]))
	}
	return list
}

func expiredText(what, file string, c *x509.Certificate) string {
	return fmt.Sprintf("the %s, %s, expired on %s: replace the file", what, file, c.NotAfter.UTC().Format(time.RFC3339))
}

func certificatesIn(file string) []*x509.Certificate {
	data, err := files.Read(file, files.Configuration)
	if err != nil {
		return nil
	}
	certs, _ := certutil.ParseCertsPEM(data)
	return certs
}

// CheckCertificates returns an error that names the certificates of the member that have expired.
func (m *Member) CheckCertificates() error {
	if list := m.expired(time.Now()); len(list) > 0 {
		return errors.New(strings.Join(list, "; "))
	}
	return nil
}
