package after

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/internal/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/console"
	"github.com/gatehouse-dev/gatehouse/internal/terminal"
)

type consoleOptions struct {
	cluster   *command.Cluster
	port      int
	noBrowser bool
	// open opens an address in a browser.
	open func(address string) error
}

// NewConsole returns the command gatehouse console.
func NewConsole(streams command.Streams) *cobra.Command {
	return newConsoleCommand(func(ctx context.Context, o *consoleOptions) error { return o.run(ctx, streams) })
}

func newConsoleCommand(run func(context.Context, *consoleOptions) error) *cobra.Command {
	o := &consoleOptions{open: openBrowser}
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Look at admission in the browser",
		Long: `Open a page in the browser that shows what judges requests, what happened to
the latest ones, and what is dangerous. The page is the one that a Gatehouse
server has at /console/. The command serves it on this machine alone, with the
credentials of the kubeconfig, for any cluster; what needs a Gatehouse server
says so.

The command passes on requests that read, and questions that change nothing:
explanations and reviews of the caller's own rights. The address that it prints
works once.`,
		Example: `  # the server that 'gatehouse serve' started in this folder
  gatehouse console

  # a cluster, with the address only
  gatehouse console --context production --no-browser`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.port < 0 || o.port > 65535 {
				return command.Usagef("--port %d is not a port", o.port)
			}
			return run(cmd.Context(), o)
		},
	}
	command.AddSection(cmd, "Page", func(f *pflag.FlagSet) {
		f.SortFlags = false
		f.IntVar(&o.port, "port", 0, "port on 127.0.0.1; 0 means any free port")
		f.BoolVar(&o.noBrowser, "no-browser", false, "print the address, and open no browser")
	})
	o.cluster = command.NewCluster(cmd)
	if err := cmd.Flags().MarkHidden("namespace"); err != nil {
		panic(err)
	}
	return cmd
}

func (o *consoleOptions) run(ctx context.Context, streams command.Streams) error {
	config, err := o.cluster.Open()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(o.port)))
	if err != nil {
		return fmt.Errorf("--port %d: %w", o.port, err)
	}
	gate, err := newGate(config, listener.Addr().String())
	if err != nil {
		listener.Close()
		return err
	}
	server := &http.Server{Handler: gate, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	address := "http://" + listener.Addr().String() + console.Prefix + "#token=" + gate.once
	terminal.Fprintf(streams.Out, "The console is at %s\nThe address works once. Ctrl-C ends the console.\n", address)
	if !o.noBrowser {
		if err := o.open(address); err != nil {
			terminal.Fprintf(streams.Err, "Cannot open a browser: %v. Open the address by hand.\n", err)
		}
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	// Watches never end by themselves.
	return server.Close()
}

// openBrowser opens an address in the browser of the desktop.
func openBrowser(address string) error {
	name, args := "xdg-open", []string{address}
	if runtime.GOOS == "darwin" {
		name = "open"
	}
	cmd := exec.Command(name, args...)
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }()
	return nil
}

// gate passes the requests of one page on to a cluster.
type gate struct {
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

func newGate(config *rest.Config, host string) (*gate, error) {
	target, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	g := &gate{host: host, once: rand.Text(), session: rand.Text()}
	g.page = console.Handler(http.HandlerFunc(g.api))
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
			console.Secure(answer.Header)
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, "the cluster does not answer: "+err.Error(), http.StatusBadGateway)
		},
	}
	return g, nil
}

func (g *gate) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	console.Secure(w.Header())
	origin := req.Header.Get("Origin")
	switch site := req.Header.Get("Sec-Fetch-Site"); {
	case req.Host != g.host:
		refuse(w, "the console is at http://"+g.host+", and answers under no other name")
	case origin != "" && origin != "http://"+g.host:
		refuse(w, "a page of "+origin+" asks: only the console may")
	case site == "cross-site" || site == "same-site":
		// Links lead here, and scripts of others do not.
		if req.Header.Get("Sec-Fetch-Mode") != "navigate" || req.Method != http.MethodGet || !strings.HasPrefix(req.URL.Path, console.Prefix) {
			refuse(w, "another page asks: only the console may")
			return
		}
		g.page.ServeHTTP(w, req)
	case req.URL.Path == console.Prefix+"session":
		g.exchange(w, req)
	default:
		g.page.ServeHTTP(w, req)
	}
}

func refuse(w http.ResponseWriter, why string) { http.Error(w, why, http.StatusForbidden) }

// exchange gives the page its session for the token of the address, once.
func (g *gate) exchange(w http.ResponseWriter, req *http.Request) {
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
func (g *gate) api(w http.ResponseWriter, req *http.Request) {
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
