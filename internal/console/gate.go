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

// Gate passes the requests of one page on to a cluster, with the credentials of a kubeconfig: reads, and
// questions that change nothing. It answers nobody but the page that was opened by its token.
type Gate struct {
	// host is the address at which the page is; a page of another host, which a DNS server led here,
	// has another one.
	host string
	// once is exchanged for session, one time.
	once, session string
	// page is the console, in front of api.
	page, proxy http.Handler

	mu struct {
		sync.Mutex
		used bool
	}
}

// questions are the paths that may be posted to: they change nothing.
var questions = []string{
	"/apis/gatehouse.dev/v1alpha1/admissionexplanations",
	"/apis/authentication.k8s.io/v1/selfsubjectreviews",
	"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
	"/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
}

// maxQuestion bounds a question, in bytes.
const maxQuestion = 3 << 20

// NewGate returns a gate to the cluster of a configuration, for a page that is at a host, an address with a
// port.
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
			// The page's credentials are for this program. Nobody else is to be impersonated.
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

// Token returns what the address of the page has behind token=. It works once.
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
		// Links lead here, and scripts of others do not.
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

// exchange gives the page its session for the token of the address, once.
func (g *Gate) exchange(w http.ResponseWriter, req *http.Request) {
	if req.Method == http.MethodHead {
		// The page asks whether this command serves it.
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
	// A client that is gone needs no answer.
	_ = json.NewEncoder(w).Encode(map[string]string{"session": g.session})
}

// api passes on what is not a file of the page.
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

// reaches reports whether a request leads through the API server to something else: the proxies of
// nodes, pods and services, and the commands in pods, which a GET can run, too.
func reaches(req *http.Request) bool {
	info, err := paths.NewRequestInfo(req)
	return err != nil || info.Verb == "proxy" || slices.Contains([]string{"proxy", "exec", "attach", "portforward"}, info.Subresource)
}

// paths reads paths as an API server does.
var paths = request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
