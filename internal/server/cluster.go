package server

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/kit/emulation"
	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/keys"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/datadir"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/encryption"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/etcd"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/members"
)

// peerPort is the default port on which members listen for each other, as in etcd.
const peerPort = 2380

// renewPeersEvery is how often a member checks whether its certificate has to be renewed.
const renewPeersEvery = 12 * time.Hour

// parseCluster checks the options of members. A server with the data directory of a member is a member, whatever its
// flags are.
func (s *settings) parseCluster() error {
	state, err := members.ReadState(s.DataDir)
	if err != nil {
		return err
	}
	s.member = state
	clustered := s.Cluster || s.Join != "" || state != nil
	for _, f := range []struct {
		flag  string
		given bool
		needs string
		has   bool
	}{
		{"--cluster", s.Cluster, "an embedded etcd, and --etcd-servers names another one", !s.external()},
		{"--join", s.Join != "", "an embedded etcd, and --etcd-servers names another one", !s.external()},
		{"--join", s.Join != "", "no --cluster: the first server has --cluster, and the others --join", !s.Cluster},
		{"--join", s.Join != "", "--join-token-file", s.JoinTokenFile != "" || etcd.HasData(s.etcdDir())},
		{"--join-token-file", s.JoinTokenFile != "", "--join", s.Join != ""},
		{"--allow-different-judging", s.AllowDifferentJudging, "--join", s.Join != ""},
		{"--peer-address", s.PeerAddress != "", "--cluster or --join", clustered},
		{"--peer-bind-address", s.PeerBindAddress != "", "--cluster or --join", clustered},
		{"--peer-cert-file", s.PeerCertFile != "", "--cluster or --join", clustered},
		{"--peer-cert-file", s.PeerCertFile != "", "--peer-key-file and --peer-trusted-ca-file", s.PeerKeyFile != "" && s.PeerTrustedCAFile != ""},
		{"--peer-key-file", s.PeerKeyFile != "", "--peer-cert-file", s.PeerCertFile != ""},
		{"--peer-trusted-ca-file", s.PeerTrustedCAFile != "", "--peer-cert-file", s.PeerCertFile != ""},
	} {
		if f.given && !f.has {
			return fmt.Errorf("%s needs %s", f.flag, f.needs)
		}
	}
	if s.external() || !clustered {
		s.member = nil
		return nil
	}
	if s.Join != "" {
		if err := members.CheckURL(s.Join); err != nil {
			return err
		}
	}
	return s.parsePeerAddress()
}

// parsePeerAddress sets the state of the member: its name, and where others reach it.
func (s *settings) parsePeerAddress() error {
	before := s.member
	s.member = &members.State{Address: s.PeerAddress}
	if before != nil {
		s.member.Name = before.Name
	}
	if s.member.Name == "" {
		s.member.Name = members.NewName()
	}
	switch {
	case s.PeerAddress == "" && before != nil:
		s.member.Address = before.Address
	case s.PeerAddress == "":
		ip, err := s.advertised()
		if err != nil {
			return fmt.Errorf("--peer-address: say at which HOST:PORT the other servers reach this one: %w", err)
		}
		s.member.Address = net.JoinHostPort(ip.String(), strconv.Itoa(peerPort))
	}
	if err := members.CheckAddress(s.member.Address); err != nil {
		return fmt.Errorf("--peer-address: %w", err)
	}
	host, port, err := net.SplitHostPort(s.member.Address)
	if err != nil {
		return fmt.Errorf("--peer-address: %w", err)
	}
	switch s.member.Listen = s.PeerBindAddress; {
	case s.PeerBindAddress == "" && s.PeerAddress == "" && before != nil:
		s.member.Listen = before.Listen
	case s.PeerBindAddress == "" && net.ParseIP(host) == nil:
		s.member.Listen = net.JoinHostPort("0.0.0.0", port)
	case s.PeerBindAddress == "":
		s.member.Listen = s.member.Address
	}
	if ip, _, err := net.SplitHostPort(s.member.Listen); err != nil || net.ParseIP(ip) == nil {
		return fmt.Errorf("--peer-bind-address %q is not an IP:PORT to listen on", s.member.Listen)
	}
	return nil
}

// external reports whether the etcd is another program.
func (s *settings) external() bool { return len(s.EtcdServers) > 0 }

// etcdDir is the directory of an embedded etcd.
func (s *settings) etcdDir() string { return filepath.Join(s.DataDir, "etcd") }

// pkiDir is the directory of the certificates that the server makes.
func (s *settings) pkiDir() string { return filepath.Join(s.DataDir, "pki") }

// peers are the certificates with which members authenticate each other.
func (s *settings) peers() *keys.Peers { return keys.NewPeers(s.files(), s.pkiDir()) }

// enter makes the etcd of this server a member of a cluster: it begins a cluster, joins one, or
// returns to its cluster.
func (s *settings) enter(ctx context.Context) (*etcd.Member, error) {
	if format, err := datadir.Has(s.DataDir); err != nil || datadir.Encrypted(format) && s.EncryptionProviderConfig == "" {
		return nil, cmp.Or(err, fmt.Errorf("the Secrets in %s are encrypted with keys of its own, and all servers of a cluster need the same ones: give each of them a copy of %s, which --encryption-provider-config names", s.DataDir, encryption.OwnFile(s.DataDir)))
	}
	present := etcd.HasData(s.etcdDir())
	known, err := members.ReadState(s.DataDir)
	if err != nil {
		return nil, err
	}
	if s.Join != "" && present && known == nil {
		return nil, fmt.Errorf("--data-dir: %s has the data of a server of its own: a server joins with an empty directory", s.DataDir)
	}
	if known != nil && !present && s.Join == "" {
		return nil, fmt.Errorf("--data-dir: %s belongs to the member %s, and its data are gone: run 'gatehouse cluster remove %s' on another server, and join again with an empty directory", s.DataDir, known.Name, known.Name)
	}
	if s.Join != "" {
		// A server that is killed while it joins continues under this name.
		if err := s.member.Write(s.files(), s.DataDir); err != nil {
			return nil, fmt.Errorf("--data-dir: %w", err)
		}
	}
	peers := s.peers()
	m := &etcd.Member{
		Name: s.member.Name, Address: s.member.Address, Listen: s.member.Listen,
		CertFile: peers.CertFile, KeyFile: peers.KeyFile, CAFile: peers.CAFile, Prefix: ClusterKeys(s.EtcdPrefix),
	}
	if s.PeerCertFile != "" {
		m.Named = true
		m.CertFile, m.KeyFile, m.CAFile = s.PeerCertFile, s.PeerKeyFile, s.PeerTrustedCAFile
	}
	if s.Join != "" && !present {
		// An unreachable member would cost the cluster its majority.
		if err := m.CheckCertificates(); s.PeerCertFile != "" && err != nil {
			return nil, fmt.Errorf("--peer-cert-file, --peer-trusted-ca-file: %w", err)
		}
		judging, err := s.judgedBy()
		if err != nil {
			return nil, err
		}
		join := &members.Join{
			URL: s.Join, TokenFile: s.JoinTokenFile, State: s.member, Peers: peers, Given: s.PeerCertFile != "",
			Judging: judging, Set: s.judgingFlags(), Different: s.AllowDifferentJudging,
		}
		m.Joins, err = join.Do(ctx)
		return m, err
	}
	if s.PeerCertFile != "" {
		return m, nil
	}
	return m, s.preparePeers()
}

func (s *settings) preparePeers() error {
	host, _, err := net.SplitHostPort(s.member.Address)
	if err == nil {
		err = s.peers().Prepare(host)
	}
	if err != nil {
		return fmt.Errorf("certificate for the other members: %w", err)
	}
	return nil
}

// renewPeers renews the certificate of a member before it expires, until ctx ends.
func (s *settings) renewPeers(ctx context.Context) {
	tick := time.NewTicker(renewPeersEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := s.preparePeers(); err != nil {
				klog.ErrorS(err, "Cannot renew the certificate of this member; will retry")
			}
		case <-ctx.Done():
			return
		}
	}
}

// judgedBy returns the inputs of admission that must be the same on all servers: values of flags, by their names, and
// the format of the data.
func (s *settings) judgedBy() (map[string]string, error) {
	var gates []string
	for name := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		gates = append(gates, fmt.Sprintf("%s=%t", name, utilfeature.DefaultFeatureGate.Enabled(name)))
	}
	slices.Sort(gates)
	versions := slices.Sorted(slices.Values(s.RuntimeConfig))
	judging := map[string]string{
		"enable-admission-plugins": strings.Join(s.plugins, ","),
		"feature-gates":            strings.Join(gates, ","),
		"emulated-version":         emulation.Effective().EmulationVersion().String(),
		"runtime-config":           strings.Join(versions, ","),
		"later-fields":             s.LaterFields,
		"admission-consistency":    s.AdmissionConsistency,
		"etcd-prefix":              s.EtcdPrefix,
		members.DataFormat:         strconv.Itoa(datadir.Shared),
	}
	for flag, file := range map[string]string{"admission-control-config-file": s.AdmissionConfigFile, "encryption-provider-config": s.EncryptionProviderConfig} {
		if judging[flag] = "no file"; file == "" {
			continue
		}
		data, err := files.Read(file, files.Configuration)
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", flag, err)
		}
		hash := sha256.Sum256(data)
		judging[flag] = "a file with the hash " + hex.EncodeToString(hash[:8])
	}
	return judging, nil
}

// judgingFlags returns the flags that set the values of the admission plugins in judgedBy. Other values have the names
// of their flags.
func (s *settings) judgingFlags() map[string][]members.Flag {
	var list []members.Flag
	for _, f := range []struct {
		name    string
		plugins []string
	}{{"admission-control", s.AdmissionControl}, {"enable-admission-plugins", s.EnableAdmissionPlugins}, {"disable-admission-plugins", s.DisableAdmissionPlugins}} {
		if len(f.plugins) > 0 {
			list = append(list, members.Flag{Name: f.name, Value: strings.Join(f.plugins, ",")})
		}
	}
	return map[string][]members.Flag{"enable-admission-plugins": list}
}

// ClusterKeys is the prefix of the keys of tokens and members in an etcd whose keys have a prefix.
func ClusterKeys(etcdPrefix string) string { return path.Join(etcdPrefix, "gatehouse", "cluster") }

// admits lets servers join; next answers all other requests.
func (r *reachable) admits(next http.Handler) http.Handler {
	if r.admitter == nil {
		return next
	}
	return r.admitter.Handler(next)
}

// withMajority refuses writes at once while a majority of the members is missing. api answers all other requests.
func (r *reachable) withMajority(api http.Handler, c *genericapiserver.Config) http.Handler {
	if r.db.embedded == nil || r.settings.member == nil {
		return api
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if info, ok := request.RequestInfoFrom(req.Context()); ok && writesToStorage(info) && !r.links.delegated(req.Context(), info) {
			if err := r.db.embedded.Refusal(); err != nil {
				responsewriters.ErrorNegotiated(err, c.Serializer, schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}, w, req)
				return
			}
		}
		api.ServeHTTP(w, req)
	})
}

func writesToStorage(info *request.RequestInfo) bool {
	return info.IsResourceRequest && slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, info.Verb) &&
		!registration.IsVirtual(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource})
}

// newAdmitter returns the Admitter, which lets servers join.
func newAdmitter(s *settings, db *database) (*members.Admitter, error) {
	judging, err := s.judgedBy()
	if err != nil {
		return nil, err
	}
	a := members.Admitter{Etcd: db.client.Client, Prefix: ClusterKeys(s.EtcdPrefix), Judging: judging, Set: s.judgingFlags()}
	if s.PeerCertFile == "" {
		a.Peers = s.peers()
	}
	return members.NewAdmitter(a), nil
}

// MemberPath is the path at which authorized clients read the state of a member.
const MemberPath = "/cluster/member"

// memberStatus answers requests to MemberPath.
func (j *judging) memberStatus(w http.ResponseWriter, req *http.Request) {
	ctx, cancel := context.WithTimeout(req.Context(), 2*time.Second)
	defer cancel()
	status, err := j.db.client.Status(ctx, j.db.endpoints[0])
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	progress := j.db.embedded.Progress()
	out := members.Status{
		ID: strconv.FormatUint(progress.ID, 16), Version: j.settings.ProgramVersion, Leader: status.Leader == progress.ID,
		Behind: progress.Committed - min(progress.Applied, progress.Committed), Applied: progress.Applied, SizeBytes: status.DbSize, InUse: status.DbSizeInUse, Problems: status.Errors,
		Members: j.db.embedded.Peers(),
	}
	if list := j.db.certificates.Load(); list != nil {
		out.Certificates = expiring((*list)(), time.Now())
	}
	if now := j.admitter.refresher.Current(); now != nil {
		out.Registrations = now.Revision
	}
	if now := j.rotation.state.Load(); now != nil {
		out.Keys = &members.Keys{Rotation: now.applied, Restart: now.trusted != j.settings.peersTrusted()}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out)
}
