package members

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/time/rate"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/internal/server/handling/keys"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/etcd"
)

const (
	// JoinPath is the path of requests to join.
	JoinPath = "/cluster/join"
	// ServerName is the name under which members verify each other's servers, whatever certificate those servers
	// show to others.
	ServerName = "cluster.gatehouse.internal"

	// maxAsk bounds the request of a server that joins and its response, in bytes, and admitTimeout the
	// time to handle it.
	maxAsk       = 256 << 10
	admitTimeout = 10 * time.Second
	// prefixFlag and DataFormat must be the same in any case. The second is not a flag.
	prefixFlag = "etcd-prefix"
	DataFormat = "data format"
	// asksPerSecond and asksAtOnce bound the attempts to join, of all servers together.
	asksPerSecond, asksAtOnce = 5, 20
	// neverCame is how long a learner that was added, and keeps others from joining, has to start.
	neverCame = time.Minute
)

// ask is the request of a server that joins.
type ask struct {
	Token   string            `json:"token"`
	Name    string            `json:"name"`
	Address string            `json:"address"`
	Request []byte            `json:"request"`
	Judging map[string]string `json:"judging"`
	// Set are the flags that set the values of Judging, by their names in Judging. Servers of older releases send none.
	Set map[string][]Flag `json:"set,omitempty"`
	// Different allows admission flags of the server to differ.
	Different bool `json:"different,omitempty"`
}

// admission is the answer.
type admission struct {
	// Joins are the members, including the new one, as NAME=URL,NAME=URL.
	Joins string `json:"joins"`
	Cert  []byte `json:"cert"`
	Trust []byte `json:"trust"`
}

// refusal is the response to a server that may not join, or not yet.
type refusal struct {
	Message string `json:"message"`
	code    int
}

func (r *refusal) Error() string { return r.Message }

func refuse(code int, format string, args ...any) error {
	return &refusal{Message: fmt.Sprintf(format, args...), code: code}
}

// Admitter answers servers that want to join. It is safe for concurrent use.
type Admitter struct {
	Etcd *clientv3.Client
	// Prefix begins the keys of tokens and members.
	Prefix string
	// Peers signs certificates; nil when the administrator makes those.
	Peers *keys.Peers
	// Judging are the inputs of this server's admission: values of flags, by their names, and
	// DataFormat.
	Judging map[string]string
	// Set are the flags of this server that set the values of Judging, by their names in Judging.
	Set map[string][]Flag

	rate *rate.Limiter
	busy chan struct{}
}

// NewAdmitter returns an Admitter with the exported fields of a.
func NewAdmitter(a Admitter) *Admitter {
	a.rate, a.busy = rate.NewLimiter(asksPerSecond, asksAtOnce), make(chan struct{}, 1)
	return &a
}

// TokensOf returns the tokens below the prefix of an Admitter.
func TokensOf(client *clientv3.Client, prefix string) *Tokens {
	return &Tokens{Etcd: client, Prefix: path.Join(prefix, "tokens")}
}

// Handler answers requests to JoinPath, which have a token in place of credentials, and passes on all other
// requests.
func (a *Admitter) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path != JoinPath {
			next.ServeHTTP(w, req)
			return
		}
		answer, err := a.serve(w, req)
		if err == nil {
			respond(w, http.StatusOK, answer)
			return
		}
		var refused *refusal
		if !errors.As(err, &refused) {
			klog.ErrorS(err, "Cannot let a server join", "from", req.RemoteAddr)
			refused = &refusal{"the server cannot do this now; its log says why", http.StatusServiceUnavailable}
		}
		if refused.code == http.StatusServiceUnavailable || refused.code == http.StatusTooManyRequests {
			w.Header().Set("Retry-After", "1")
		}
		respond(w, refused.code, refused)
	})
}

func respond(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

func (a *Admitter) serve(w http.ResponseWriter, req *http.Request) (*admission, error) {
	if req.Method != http.MethodPost {
		return nil, refuse(http.StatusMethodNotAllowed, "servers join by POST")
	}
	if !a.rate.Allow() {
		return nil, refuse(http.StatusTooManyRequests, "too many servers try to join at once")
	}
	var in ask
	if err := json.NewDecoder(http.MaxBytesReader(w, req.Body, maxAsk)).Decode(&in); err != nil {
		return nil, refuse(http.StatusBadRequest, "the request to join cannot be read")
	}
	ctx, cancel := context.WithTimeout(req.Context(), admitTimeout)
	defer cancel()
	// The token is checked first, so that other errors are only for servers with a valid token.
	public, err := keys.ReadRequest(in.Request)
	self := joining{in.Name, etcd.KeyHash(public), time.Now().UTC()}
	if _, _, err := TokensOf(a.Etcd, a.Prefix).check(ctx, in.Token, self.server()); err != nil {
		return nil, tokenError(err)
	}
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "%v", err)
	}
	if in.Name == "" || len(in.Name) > 100 || strings.ContainsAny(in.Name, ",=/ ") {
		return nil, refuse(http.StatusBadRequest, "%q cannot be the name of a member", in.Name)
	}
	if err := CheckAddress(in.Address); err != nil {
		return nil, refuse(http.StatusBadRequest, "--peer-address: %v", err)
	}
	if one, other := a.Judging[prefixFlag], in.Judging[prefixFlag]; one != other {
		return nil, refuse(http.StatusConflict, "--%s: the servers of the cluster have %q, and this one has %q: it would not see their objects", prefixFlag, one, other)
	}
	if one, other := a.Judging[DataFormat], in.Judging[DataFormat]; one != other {
		return nil, refuse(http.StatusConflict, "the servers of the cluster keep data of format %q, and the program of this one has format %q: start the version that they have", one, other)
	}
	if !in.Different {
		if err := Differ(Judged{a.Judging, a.Set}, Judged{in.Judging, in.Set}); err != nil {
			return nil, refuse(http.StatusConflict, "%v", err)
		}
	}
	// Servers are added one at a time.
	select {
	case a.busy <- struct{}{}:
		defer func() { <-a.busy }()
	case <-ctx.Done():
		return nil, refuse(http.StatusServiceUnavailable, "another server is joining")
	}
	return a.admit(ctx, &in, self)
}

func tokenError(err error) error {
	if errors.Is(err, errToken) {
		return refuse(http.StatusUnauthorized, "%v", err)
	}
	return err
}

// joining is the stored record of a server that was added.
type joining struct {
	Name string `json:"name"`
	// Key is the hash of its public key, so that no other server can continue in its place.
	Key   string    `json:"key"`
	Added time.Time `json:"added"`
}

// server is the server as its token records it.
func (j joining) server() string { return j.Name + "/" + j.Key }

func (a *Admitter) joiningKey(id uint64) string {
	return path.Join(a.Prefix, "joining", strconv.FormatUint(id, 16))
}

// admit adds a server as a learner, or finds it added, and signs its certificate.
func (a *Admitter) admit(ctx context.Context, in *ask, self joining) (*admission, error) {
	list, err := a.Etcd.MemberList(ctx)
	if err != nil {
		return nil, err
	}
	if err := TokensOf(a.Etcd, a.Prefix).use(ctx, in.Token, self.server()); err != nil {
		return nil, tokenError(err)
	}
	url := etcd.PeerURL(in.Address)
	added := false
	for _, m := range list.Members {
		known, err := a.joiningOf(ctx, m)
		if err != nil {
			return nil, err
		}
		same, came := known.Key == self.Key, m.Name != ""
		switch {
		case slices.Contains(m.PeerURLs, url) && (!m.IsLearner || came && !same):
			return nil, refuse(http.StatusConflict, "the member %s of the cluster has the peer address %s. Another server on this machine? Give each its own --peer-address HOST:PORT, --secure-port and --data-dir. Or are the data of %s gone? Run 'gatehouse cluster remove %s' on another server first", m.Name, in.Address, m.Name, m.Name)
		case slices.Contains(m.PeerURLs, url) && same && !came:
			added = true
		case m.Name == in.Name && !(m.IsLearner && same):
			return nil, refuse(http.StatusConflict, "the cluster has a member %s", in.Name)
		// The server has lost its data or changed its address while it joined, or another server never started. There
		// is one learner at a time.
		case m.IsLearner && (same || slices.Contains(m.PeerURLs, url) || !came && time.Since(known.Added) > neverCame):
			if err := a.drop(ctx, m.ID, known.Name); err != nil {
				return nil, err
			}
		case m.IsLearner:
			return nil, refuse(http.StatusServiceUnavailable, "the member at %s is joining; 'gatehouse cluster remove' takes it out if it does not come", strings.Join(m.PeerURLs, ","))
		}
	}
	members := list.Members
	if a.Peers != nil {
		// The other members accept the server by this record, so it is written first. A server with the name of a
		// member got an error above.
		if err := etcd.PutJoining(ctx, a.Etcd, a.Prefix, etcd.Identity{Name: in.Name, URL: url, Keys: []string{self.Key}}); err != nil {
			return nil, err
		}
	}
	if !added {
		done, err := a.Etcd.MemberAddAsLearner(ctx, []string{url})
		switch {
		// The ID of a member depends on the second in which it was added: the ID of a member that was removed in this
		// second cannot be used again.
		case errors.Is(err, rpctypes.ErrTooManyLearners), errors.Is(err, rpctypes.ErrMemberNotFound):
			return nil, refuse(http.StatusServiceUnavailable, "another server is joining")
		case err != nil:
			return nil, err
		}
		members = done.Members
		value, err := json.Marshal(self)
		if err != nil {
			return nil, err
		}
		if _, err := a.Etcd.Put(ctx, a.joiningKey(done.Member.ID), string(value)); err != nil {
			return nil, err
		}
		klog.InfoS("A server joins", "member", in.Name, "address", in.Address)
	}
	out := &admission{}
	var joins []string
	for _, m := range members {
		name := m.Name
		if slices.Contains(m.PeerURLs, url) {
			name = in.Name
		}
		for _, u := range m.PeerURLs {
			joins = append(joins, name+"="+u)
		}
	}
	out.Joins = strings.Join(joins, ",")
	if a.Peers == nil {
		return out, nil
	}
	host, _, err := net.SplitHostPort(in.Address)
	if err != nil {
		return nil, err
	}
	out.Cert, out.Trust, err = a.Peers.Sign(in.Request, host)
	return out, err
}

// joiningOf returns the stored record of a member; the zero value if there is none.
func (a *Admitter) joiningOf(ctx context.Context, m *pb.Member) (joining, error) {
	var known joining
	found, err := a.Etcd.Get(ctx, a.joiningKey(m.ID))
	if err == nil && len(found.Kvs) > 0 {
		err = json.Unmarshal(found.Kvs[0].Value, &known)
	}
	return known, err
}

// drop removes a learner.
func (a *Admitter) drop(ctx context.Context, id uint64, name string) error {
	if _, err := a.Etcd.MemberRemove(ctx, id); err != nil && !errors.Is(err, rpctypes.ErrMemberNotFound) {
		return err
	}
	if _, err := a.Etcd.Delete(ctx, a.joiningKey(id)); err != nil {
		return err
	}
	return etcd.DeleteIdentity(ctx, a.Etcd, a.Prefix, name)
}

// Flag is a flag as the command line or the configuration file of a server sets it.
type Flag struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Judged are the settings for admission that all servers of a cluster share, and the flags that set them.
type Judged struct {
	Values map[string]string
	Set    map[string][]Flag
}

// set lists the flags of two servers that set a value, if a flag has another name than the value: a user who disables an
// admission plugin does not look for --enable-admission-plugins.
func set(name string, here, there Judged) string {
	list := func(j Judged) (texts []string, other bool) {
		for _, f := range j.Set[name] {
			value := f.Value
			if len(value) > mostQuoted {
				value = value[:mostQuoted] + "..."
			}
			texts, other = append(texts, "--"+f.Name+"="+value), other || f.Name != name
		}
		return texts, other
	}
	mine, first := list(here)
	theirs, second := list(there)
	var parts []string
	if len(theirs) > 0 && (first || second) {
		parts = append(parts, "this one was started with "+strings.Join(theirs, " "))
	}
	if len(mine) > 0 && (first || second) {
		parts = append(parts, "the server that answers with "+strings.Join(mine, " "))
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// label is the name of a value in an error: the flag if only one was set, or else the name of the
// value.
func label(name string, here, there Judged) string {
	if all := slices.Concat(there.Set[name], here.Set[name]); len(all) == 1 {
		return all[0].Name
	}
	return name
}

// Differ returns an error that names a flag with which two servers would decide requests differently, and
// both values.
func Differ(here, there Judged) error {
	for _, flag := range slices.Sorted(maps.Keys(here.Values)) {
		one, other := here.Values[flag], there.Values[flag]
		if one == other {
			continue
		}
		if strings.Contains(one+other, ",") {
			mine, theirs := strings.Split(one, ","), strings.Split(other, ",")
			without := func(list, other []string) string {
				return strings.Join(slices.DeleteFunc(slices.Clone(list), func(item string) bool { return slices.Contains(other, item) }), ",")
			}
			one, other = without(mine, theirs), without(theirs, mine)
			if one == other {
				one, other = "another order", "another order"
			}
		}
		return fmt.Errorf("--%s: the servers of the cluster have %s, and this one has %s%s: requests would be decided differently; use the same flags and files, or say --allow-different-judging",
			label(flag, here, there), quoted(one), quoted(other), set(flag, here, there))
	}
	return nil
}

// mostQuoted bounds a value in an error, in bytes.
const mostQuoted = 200

func quoted(value string) string {
	switch {
	case value == "":
		return "nothing besides"
	case len(value) > mostQuoted:
		value = value[:mostQuoted] + "..."
	}
	return strconv.Quote(value)
}
