package console

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
)

// Gate proxies the requests of one page to a cluster, with the credentials of a kubeconfig: reads, and
// questions that change nothing. It serves only the page that was opened with its token.
type Gate struct {
	// host is the address of the page. A page of another host whose DNS name resolves here has another Host
	// header.
	host string
	// once is the token that is exchanged for session, one time.
	once, session string
	// page is the console, in front of api.
	page, proxy http.Handler

	mu struct {
		sync.Mutex
		used bool
	}
}

// questions are the paths that accept POST: they change nothing.
var questions = []string{
	"/apis/gatehouse.dev/v1alpha1/admissionexplanations",
	"/apis/authentication.k8s.io/v1/selfsubjectreviews",
	"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
	"/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
}

// maxQuestion bounds a question, in bytes.
const maxQuestion = 3 << 20

// NewGate returns a gate to the cluster of a configuration, for a page at host, an address with a port.
func NewGate(config *rest.Config, host string) (*Gate, error) {
	target, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	g := &Gate{host: host, once: rand.Text(), session: rand.Text()}
	g.page = Handler(http.HandlerFunc(g.api))
	g.proxy = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: target.Scheme, Host: target.Host, Path: target.Path})
			// The page's credentials are meant for this program, and impersonation headers are dropped.
			for name := range r.Out.Header {
				if !slices.Contains([]string{"Accept", "Content-Type"}, name) {
					r.Out.Header.Del(name)
				}
			}
		},
		Transport: transport, FlushInterval: -1,
		ModifyResponse: func(answer *http.Response) error {
			for _, name := range []string{"Set-Cookie", "Location", "Content-Security-Policy"} {
				answer.Header.Del(name)
			}
			Secure(answer.Header)
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, "the cluster does not answer: "+err.Error(), http.StatusBadGateway)
		},
	}
	return g, nil
}

// Token returns the value of token= in the address of the page. It works once.
func (g *Gate) Token() string { return g.once }

// ServeHTTP implements http.Handler.
func (g *Gate) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	Secure(w.Header())
	origin := req.Header.Get("Origin")
	switch site := req.Header.Get("Sec-Fetch-Site"); {
	case req.Host != g.host:
		refuse(w, "the console is at http://"+g.host+", and answers under no other name")
	case origin != "" && origin != "http://"+g.host:
		refuse(w, "a page of "+origin+" asks: only the console may")
	case site == "cross-site" || site == "same-site":
		// Links may lead here, but scripts of other pages may not.
		if req.Header.Get("Sec-Fetch-Mode") != "navigate" || req.Method != http.MethodGet || !strings.HasPrefix(req.URL.Path, Prefix) {
			refuse(w, "another page asks: only the console may")
			return
		}
		g.page.ServeHTTP(w, req)
	case req.URL.Path == Prefix+"session":
		g.exchange(w, req)
	default:
		g.page.ServeHTTP(w, req)
	}
}

func refuse(w http.ResponseWriter, why string) { http.Error(w, why, http.StatusForbidden) }

// exchange gives the page its session for the token, once.
func (g *Gate) exchange(w http.ResponseWriter, req *http.Request) {
	if req.Method == http.MethodHead {
		// The page checks whether this command serves it.
		w.WriteHeader(http.StatusNoContent)
		return
	}
	var sent struct{ Token string }
	if req.Method != http.MethodPost || json.NewDecoder(io.LimitReader(req.Body, 1<<10)).Decode(&sent) != nil {
		http.Error(w, "the token of the address is posted here", http.StatusBadRequest)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if subtle.ConstantTimeCompare([]byte(sent.Token), []byte(g.once)) != 1 || g.mu.used {
		refuse(w, "this address was used, or is of another run: start gatehouse console again")
		return
	}
	g.mu.used = true
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	// An error means that the client has disconnected.
	_ = json.NewEncoder(w).Encode(map[string]string{"session": g.session})
}

// api proxies every path that is not a file of the page.
func (g *Gate) api(w http.ResponseWriter, req *http.Request) {
	if subtle.ConstantTimeCompare([]byte(req.Header.Get("Authorization")), []byte("Bearer "+g.session)) != 1 {
		http.Error(w, "use the address that gatehouse console printed", http.StatusUnauthorized)
		return
	}
	switch {
	case req.Method == http.MethodPost && slices.Contains(questions, req.URL.Path):
		req.Body = http.MaxBytesReader(w, req.Body, maxQuestion)
	case req.Method != http.MethodGet && req.Method != http.MethodHead:
		refuse(w, "the console only reads, and asks: "+req.Method+" "+req.URL.Path+" is not passed on")
		return
	case reaches(req):
		refuse(w, "the console reads objects only: "+req.URL.Path+" is not passed on")
		return
	case req.Header.Get("Upgrade") != "":
		refuse(w, "the console opens no streams")
		return
	}
	g.proxy.ServeHTTP(w, req)
}

// reaches reports whether a request passes through the API server to another server: the proxies of nodes,
// pods and services, and commands in pods, which a GET can run, too.
func reaches(req *http.Request) bool {
	info, err := paths.NewRequestInfo(req)
	return err != nil || info.Verb == "proxy" || slices.Contains([]string{"proxy", "exec", "attach", "portforward"}, info.Subresource)
}

// paths parses paths as an API server does.
var paths = request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
