package before

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/commands/dev"
	"github.com/gatehouse-dev/gatehouse/internal/kit/temporary"
	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
	"github.com/gatehouse-dev/gatehouse/internal/readers/view"
	"github.com/gatehouse-dev/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/traces/v1alpha1"
)

type devOptions struct {
	dev.Options
	output         string
	init, language string
	log            command.Logging
	// live makes a cluster call the program, at place.
	live, rbac bool
	cluster    *command.Cluster
	namespaces []string
	place      temporary.Place
	// guard is the ID of the session that this process cleans up after.
	guard string
	// config is the configuration file, and print prints its section.
	config string
	print  bool
}

// guardFlag makes a process the guard of a session with a cluster.
const guardFlag = "guard"

// NewDev returns the command gatehouse dev. build builds kustomizations.
func NewDev(streams command.Streams, build dev.Kustomize) *cobra.Command {
	o := &devOptions{log: command.NewLogging(), cluster: &command.Cluster{}}
	o.Kustomize = build
	cmd := &cobra.Command{
		Use:   "dev [flags] [-- COMMAND [ARGUMENTS]]",
		Short: "Run the program of a webhook, and a server that calls it",
		Args: func(cmd *cobra.Command, args []string) error {
			at := cmd.ArgsLenAtDash()
			switch {
			case o.init != "" && len(args) > 0:
				return command.Usagef("--init makes a folder and runs nothing: leave out %q", args[0])
			case o.init != "" || o.rbac || o.guard != "":
				return nil
			case len(args) == 0:
				return nil
			case at != 0:
				return command.Usagef("write -- before the program: gatehouse dev -f FILE -- %s", args[max(at, 0)])
			}
			o.Command = args
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case o.guard != "":
				return o.cluster.AwaitOwner(streams, "'gatehouse dev' ended without taking its registrations out of the cluster; that was done",
					func(ctx context.Context, config *rest.Config) error {
						return dev.Leave(ctx, config, o.guard, temporary.GuardSettled)
					})
			case o.init != "":
				return o.make(streams.Out)
			case o.rbac:
				return printRBAC(streams.Out, "gatehouse-dev", "# What \"gatehouse dev --live\" does in a cluster, besides what its program does.\n", dev.LiveRules())
			}
			if err := o.configure(cmd); err != nil {
				return err
			}
			if err := o.checkLive(cmd.Flags()); err != nil {
				return err
			}
			if len(o.Command)+len(o.Programs)+len(o.Paths)+len(o.Kustomizations)+len(o.Chart) == 0 {
				return command.Usagef("name the manifests by -f, -k or --chart, or the program after --: gatehouse dev -f FILE -- COMMAND")
			}
			if cmd.Flags().Changed("lang") {
				return command.Usagef("--lang needs --init")
			}
			if len(o.Values) > 0 && o.Chart == "" {
				return command.Usagef("--values needs --chart")
			}
			if o.Port < 0 || o.Port > 65535 {
				return command.Usagef("--webhook-port %d is not a port", o.Port)
			}
			if o.FakeNodes < 0 {
				return command.Usagef("--fake-nodes %d must not be negative", o.FakeNodes)
			}
			if o.print {
				return o.explain(cmd.Context(), streams)
			}
			return o.run(cmd.Context(), streams)
		},
	}
	command.AddSection(cmd, "Server", func(f *pflag.FlagSet) {
		f.StringArrayVarP(&o.Paths, "filename", "f", nil, "`path` of manifests: a file, a directory or -, which is standard input; may be repeated")
		f.StringArrayVarP(&o.Kustomizations, "kustomize", "k", nil, "`directory` of a kustomization; may be repeated")
		f.StringVar(&o.Chart, "chart", "", "`directory` or archive of a Helm chart; it is rendered without a cluster, and no dependency is downloaded")
		f.StringArrayVar(&o.Values, "values", nil, "`file` with values of the chart; may be repeated")
		f.IntVar(&o.FakeNodes, "fake-nodes", 0, "number of nodes that are only objects; with them, what makes pods is applied, too")
		f.StringVar(&o.DataDir, "data-dir", "", "`directory` that keeps the objects (default a temporary one)")
		f.StringVar(&o.KubeconfigOut, "kubeconfig-out", "", "`file` for the administrator's kubeconfig, in addition; it is removed at the end")
	})
	command.AddSection(cmd, "Program", func(f *pflag.FlagSet) {
		f.BoolVar(&o.AsServiceAccount, "as-service-account", false, "give the program the rights of its service account, and name each refusal (default all rights)")
		f.BoolVar(&o.print, "print", false, "print the programs as the section dev of the configuration file, and run nothing")
		command.AddConfigFlag(f, &o.config)
		f.StringVar(&o.Service, "service", "", "service in place of the program, as `NAMESPACE/NAME` (default from the registrations)")
		f.IntVar(&o.Port, "webhook-port", 0, "port that the program listens on (default from the manifests, or 9443)")
		f.StringArrayVar(&o.Watch, "watch", nil, "`pattern` of files whose change restarts the program, as in a .gitignore; may be repeated (default the Go files of the module)")
		f.StringVar(&o.Build, "build", "", "shell `command` that builds the program (default nothing; 'go run PACKAGE' is built by this command)")
	})
	command.AddSection(cmd, "A cluster instead of a server", func(f *pflag.FlagSet) {
		f.BoolVar(&o.live, "live", false, "have a cluster call the program for your own requests")
		f.StringSliceVarP(&o.namespaces, "namespace", "n", nil, "`namespaces` whose requests go to the program, of all users (default your own requests)")
		f.StringVar(&o.cluster.Flags.KubeConfig, "kubeconfig", "", "kubeconfig of the cluster (default as for 'gatehouse kubectl')")
		f.StringVar(&o.cluster.Flags.Context, "context", "", "context in the kubeconfig")
		f.StringVar(&o.place.BindAddress, "bind-address", "127.0.0.1", "IP address to listen on for the cluster")
		f.IntVar(&o.place.Port, "secure-port", 0, "port to listen on for the cluster; 0 means any free port")
		f.StringVar(&o.place.URL, "url", "", "URL at which the cluster reaches this command (default from --bind-address and --secure-port)")
		f.BoolVar(&o.rbac, "rbac", false, "print the ClusterRole that --live needs, and do nothing else")
		f.StringVar(&o.guard, guardFlag, "", "")
		f.Lookup(guardFlag).Hidden = true
	})
	command.AddSection(cmd, "A new webhook", func(f *pflag.FlagSet) {
		f.StringVar(&o.init, "init", "", "make a `directory` with a webhook that works, its registration and its tests, and run nothing")
		command.Choose(f, &o.language, "lang", "", dev.Languages[0], "language of --init", dev.Languages...)
	})
	command.AddSection(cmd, "Output", func(f *pflag.FlagSet) {
		command.Choose(f, &o.output, "output", "o", "text", "text, or jsonl: the trace of each decided request on a line", "text", "jsonl")
		o.log.AddFlags(f, "verbosity: 2 and more include the log of the server")
	})
	return cmd
}

// checkLive rejects flags that need --live, and flags of a local server together with --live.
func (o *devOptions) checkLive(f *pflag.FlagSet) error {
	if !o.live {
		for _, name := range []string{"namespace", "kubeconfig", "context", "bind-address", "secure-port", "url"} {
			if f.Changed(name) {
				return command.Usagef("--%s needs --live", name)
			}
		}
		return nil
	}
	for _, name := range []string{"fake-nodes", "data-dir", "kubeconfig-out", "as-service-account"} {
		if f.Changed(name) {
			return command.Usagef("--%s is for a server of this command, and not for the cluster of --live", name)
		}
	}
	return nil
}

// configure reads the section dev of the configuration file. Manifests of the command line replace its manifests.
func (o *devOptions) configure(cmd *cobra.Command) error {
	c, err := command.ReadConfiguration(cmd, o.config)
	if err != nil {
		return err
	}
	d := c.Dev
	if len(o.Paths)+len(o.Kustomizations)+len(o.Chart) == 0 {
		o.Chart = c.Below(d.Chart)
		for _, file := range d.Values {
			o.Values = append(o.Values, c.Below(file))
		}
		for _, path := range d.Manifests {
			o.Paths = append(o.Paths, c.Below(path))
		}
		for _, path := range d.Kustomizations {
			o.Kustomizations = append(o.Kustomizations, c.Below(path))
		}
	}
	command.Fallback(cmd, "as-service-account", &o.AsServiceAccount, d.AsServiceAccount)
	command.Fallback(cmd, "fake-nodes", &o.FakeNodes, d.FakeNodes)
	command.Fallback(cmd, "watch", &o.Watch, d.Watch)
	for i, p := range d.Programs {
		if p.Service == "" && len(d.Programs) > 1 {
			return command.Usagef("%s: dev.programs[%d].service: name the service, since there are several programs", c.File, i)
		}
		one := dev.Program{Service: p.Service, Port: p.Port, Directory: c.Below(p.Directory), Build: p.Build, Command: p.Command, Arguments: p.Arguments}
		for _, v := range p.Environment {
			one.Environment = append(one.Environment, v.Pod())
		}
		o.Programs = append(o.Programs, one)
	}
	return nil
}

// explain prints the programs as a section of the configuration file.
func (o *devOptions) explain(ctx context.Context, streams command.Streams) error {
	o.Stdin = streams.In
	programs, err := dev.Explain(ctx, o.Options)
	if err != nil {
		return err
	}
	c := command.Configuration{APIVersion: command.ConfigVersion, Kind: command.ConfigKind, Dev: command.DevConfiguration{
		Manifests: o.Paths, Kustomizations: o.Kustomizations, Chart: o.Chart, Values: o.Values, AsServiceAccount: o.AsServiceAccount, FakeNodes: o.FakeNodes, Watch: o.Watch,
	}}
	for _, p := range programs {
		one := command.DevProgram{Service: p.Service, Port: p.Port, Directory: p.Directory, Build: p.Build, Command: p.Command, Arguments: p.Arguments}
		for _, v := range p.Environment {
			one.Environment = append(one.Environment, command.DevVariableOf(v))
		}
		c.Dev.Programs = append(c.Dev.Programs, one)
	}
	data, err := c.Marshal()
	if err != nil {
		return err
	}
	_, err = terminal.Fprintf(streams.Out, "%s", data)
	return err
}

// openLive opens the cluster. The program gets a kubeconfig with this cluster only.
func (o *devOptions) openLive(show func(*trace.Record)) (*dev.Live, error) {
	config, err := o.cluster.Open()
	if err != nil {
		return nil, err
	}
	raw, err := o.cluster.Flags.Loader().RawConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	if name := o.cluster.Flags.Context; name != "" {
		raw.CurrentContext = name
	}
	if err := errors.Join(clientcmdapi.MinifyConfig(&raw), clientcmdapi.FlattenConfig(&raw)); err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	kubeconfig, err := clientcmd.Write(raw)
	if err != nil {
		return nil, err
	}
	return &dev.Live{Cluster: config, Kubeconfig: kubeconfig, Namespaces: o.namespaces, Place: o.place, Show: show,
		Guard: func(id string) (func(), error) {
			return temporary.Post(append([]string{"dev", "--" + guardFlag + "=" + id}, o.cluster.Arguments()...)...)
		},
	}, nil
}

// make writes the folder of --init and prints the next commands.
func (o *devOptions) make(out io.Writer) error {
	files, run, err := dev.Init(o.init, o.language)
	if err != nil {
		return fmt.Errorf("--init: %w", err)
	}
	terminal.Fprintf(out, "Made %s.\n\nRun it, and send it a pod from another terminal:\n", strings.Join(files, ", "))
	terminal.Fprintf(out, "  cd %s && gatehouse dev -f webhook.yaml --kubeconfig-out kubeconfig %s\n", shellWord(o.init), run)
	_, err = terminal.Fprintf(out, "  gatehouse kubectl --kubeconfig %s/kubeconfig run web --image=nginx\n", shellWord(o.init))
	return err
}

// shown prints the events of a session.
type shown struct {
	streams command.Streams
	output  string
	// notes receives sentences: Out, or Err when Out has JSON.
	notes io.Writer

	mu sync.Mutex
	// rejected is the last rejected request.
	rejected *trace.Record
	// last is the text of the last line, and again the number of equal requests since, which were not printed.
	// The timer prints that number after wait, which grows while the repetition continues.
	last  string
	again int
	timer *time.Timer
	wait  time.Duration
}

func (o *devOptions) run(ctx context.Context, streams command.Streams) error {
	if err := o.log.StartFromTwo(ctx, streams.Err); err != nil {
		return err
	}
	s := &shown{streams: streams, output: o.output, notes: streams.Out}
	if o.output == "jsonl" {
		s.notes = streams.Err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel(nil)
	if o.live {
		var err error
		if o.Live, err = o.openLive(func(r *trace.Record) {
			if err := s.show(r, &v1alpha1.AdmissionTrace{
				TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "AdmissionTrace"},
				ObjectMeta: metav1.ObjectMeta{Name: r.ID, Namespace: r.Request.Namespace}, Record: *r,
			}); err != nil {
				cancel(err)
			}
		}); err != nil {
			return err
		}
	}
	var keys *terminal.Keys
	if file, ok := terminal.Exact(streams.Err).(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		keys = terminal.NewKeys()
	}
	defer keys.End()
	if keys != nil {
		restart := make(chan struct{}, 1)
		o.Restart, o.Terminal = restart, keys.File()
		running.Go(func() { s.press(ctx, keys, restart) })
	}
	o.Stdin = streams.In
	var outputs []*programLines
	defer func() {
		for _, output := range outputs {
			output.flush()
		}
	}()
	o.Output = func(program string) io.Writer {
		output := &programLines{out: streams.Err, name: strings.TrimLeft(program+" ", " ")}
		outputs = append(outputs, output)
		return output
	}
	o.Say = s.say
	o.Busy = func(text string) func() { return terminal.NewProgress(streams.Err, text, command.ProgressAfter).End }
	o.Ready = func(r dev.Ready) {
		if o.live {
			s.ready(r, keys != nil)
			return
		}
		begun := make(chan struct{})
		running.Go(func() {
			if err := s.follow(ctx, r.Address, sync.OnceFunc(func() { close(begun) })); err != nil {
				cancel(err)
			}
		})
		select {
		case <-begun:
		case <-ctx.Done():
		}
		s.ready(r, keys != nil)
	}
	err := dev.Run(ctx, o.Options)
	s.sayAgain()
	if cause := context.Cause(ctx); err == nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

// say prints a sentence.
func (s *shown) say(format string, args ...any) {
	terminal.Fprintf(s.notes, format+"\n", args...)
}

// ready prints the addresses of the session and the keys.
func (s *shown) ready(r dev.Ready, keys bool) {
	if r.Cluster != "" {
		s.say("gatehouse is ready: the requests of the %s to %s go to the program", r.Requests, r.Cluster)
	} else {
		s.say("gatehouse is ready at %s, kubeconfig %s", r.URL, r.Kubeconfig)
	}
	if len(r.Webhooks) > 0 {
		s.say("  webhooks     %s, at port %d", strings.Join(r.Webhooks, ", "), r.Port)
		s.say("  certificate  %s", r.Certificates)
	}
	if r.Cluster == "" {
		s.say("  requests     gatehouse kubectl --kubeconfig %s ...", r.Kubeconfig)
		s.say("  console      gatehouse console --kubeconfig %s", r.Kubeconfig)
	}
	if keys {
		s.say("  keys         r restarts, e explains the last rejected request, Ctrl-C ends")
	}
}

// press handles the keys of the terminal.
func (s *shown) press(ctx context.Context, keys *terminal.Keys, restart chan<- struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case key, ok := <-keys.C:
			switch {
			case !ok:
				return
			case key == 'r':
				select {
				case restart <- struct{}{}:
				default:
				}
			case key == 'e':
				s.explain()
			}
		}
	}
}

// explain prints the trace of the last rejected request.
func (s *shown) explain() {
	s.mu.Lock()
	r := s.rejected
	s.mu.Unlock()
	if r == nil {
		s.say("No request was rejected yet.")
		return
	}
	page := terminal.NewPage(s.notes)
	view.OfTrace(r, view.Links{}).Text(page)
	// A failed write does not end the session.
	_ = page.Flush()
}

// follow prints each request that was rejected or called the program.
func (s *shown) follow(ctx context.Context, at server.Address, begun func()) error {
	client, err := dynamic.NewForConfig(at.Admin)
	if err != nil {
		return err
	}
	return command.FollowTraces(ctx, client.Resource(command.AdmissionTraces), "", begun, func(u *unstructured.Unstructured) error {
		t, err := command.DecodeTrace(u)
		if err != nil {
			return err
		}
		r := &t.Record
		if r.Outcome == trace.OutcomeAllowed && len(slices.Collect(r.Calls())) == 0 {
			return nil
		}
		return s.show(r, u.Object)
	}, s.streams.Err)
}

// show prints one request. encoded is its trace for --output jsonl.
func (s *shown) show(r *trace.Record, encoded any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if wasRejected(r) {
		s.rejected = r
	}
	if s.output == "jsonl" {
		return json.NewEncoder(terminal.Exact(s.streams.Out)).Encode(encoded)
	}
	page := terminal.NewPage(s.streams.Out)
	if line := alike(r); line != s.last {
		s.writeAgain(page)
		s.last = line
		writeJudged(page, r)
		s.wait = firstAgain
	} else if s.again++; s.timer == nil {
		s.timer = time.AfterFunc(s.wait, s.sayAgain)
		s.wait = min(2*s.wait, lastAgain)
	}
	return page.Flush()
}

// Repeated requests are counted instead of printed. firstAgain is the wait before the first line with their
// number, and lastAgain the longest wait while the repetition continues.
const (
	firstAgain = time.Second
	lastAgain  = time.Minute
)

// sayAgain prints the number of requests that were not printed.
func (s *shown) sayAgain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	page := terminal.NewPage(s.streams.Out)
	s.writeAgain(page)
	// A failed write does not end the session.
	_ = page.Flush()
}

// alike returns a key that is equal for the repeated requests of a controller. The key of a rejected request
// has no object name, since the name may be generated.
func alike(r *trace.Record) string {
	q := r.Request
	if wasRejected(r) {
		q.Name = ""
	}
	return fmt.Sprint(view.OutcomeText(r), q.Operation, q.Object(), q.Namespace, q.User, happened(r))
}

// writeAgain writes the number of requests that were not printed, and resets it.
func (s *shown) writeAgain(p *terminal.Page) {
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	switch {
	case s.again == 1:
		terminal.Fprintf(p, "         ... again\n")
	case s.again > 1:
		terminal.Fprintf(p, "         ... again, %d times\n", s.again)
	}
	s.again = 0
}

// wasRejected reports whether a request was rejected.
func wasRejected(r *trace.Record) bool {
	return r.Outcome == trace.OutcomeDenied || r.Outcome == trace.OutcomeFailed
}

// writeJudged writes a request and its outcome on one line.
func writeJudged(p *terminal.Page, r *trace.Record) {
	verdict := terminal.Paint(terminal.Green, "allowed ")
	switch {
	case r.Refused():
		verdict = terminal.Paint(terminal.Red, "refused ")
	case wasRejected(r):
		verdict = terminal.Paint(terminal.Red, "rejected")
	case r.Outcome == trace.OutcomeFailedOpen:
		verdict = terminal.Paint(terminal.Yellow, "allowed ")
	}
	object := r.Request.Object()
	if r.Request.Namespace != "" {
		object += " in " + r.Request.Namespace
	}
	text := fmt.Sprintf(" %s %s by %s, %s%s", r.Request.Operation, object, r.Request.User, view.Brief(r.TotalMicros), happened(r))
	if r.Refused() {
		text += "; allowed, then " + r.Response.String()
	}
	head := r.Start.Local().Format("15:04:05 ")
	room := p.Width()
	if room > 0 {
		room -= len(head) + len("rejected") + 1
	}
	terminal.Fprintf(p, "%s%s%s\n", head, verdict, terminal.Lines(terminal.Cut(terminal.Line(text), room)))
}

// mostFields is the largest number of changed fields on a line.
const mostFields = 3

// happened describes the rejection, the failures and the changes of a request.
func happened(r *trace.Record) string {
	var parts []string
	for a := range r.Acts() {
		switch {
		case a.Deed == trace.Changes && a.Kind != trace.ByPlugin:
			// The order of a patch that a program builds from a map differs each time.
			fields := slices.Sorted(slices.Values(a.Fields()))
			if more := len(fields) - mostFields; more > 0 {
				fields = append(fields[:mostFields:mostFields], fmt.Sprintf("%d more", more))
			}
			parts = append(parts, fmt.Sprintf("%s changed %s", a.By, strings.Join(fields, ", ")))
		case a.Deed == trace.Rejects && !a.Step.Allowed, a.Deed == trace.FailsOpen:
			message := a.Message
			if a.Entry == nil || !strings.Contains(message, a.Entry.Name) {
				message = a.By + ": " + message
			}
			parts = append(parts, message)
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "; " + strings.Join(parts, "; ")
}

// programLines writes the output of the program, each line with a mark in front.
type programLines struct {
	out io.Writer
	// name of the program with a space; empty if there is one.
	name string

	mu   sync.Mutex
	rest []byte
}

// mostLine is the longest line of the program, in bytes. A longer line is broken.
const mostLine = 64 << 10

func (l *programLines) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, data...)
	for len(l.rest) > 0 {
		end := bytes.IndexByte(l.rest, '\n')
		if end < 0 && len(l.rest) < mostLine {
			break
		}
		if end < 0 {
			end = mostLine - 1
		}
		l.print(l.rest[:end])
		l.rest = l.rest[end+1:]
	}
	return len(data), nil
}

func (l *programLines) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.rest) > 0 {
		l.print(l.rest)
		l.rest = nil
	}
}

// print prints a line and keeps its tabs.
func (l *programLines) print(line []byte) {
	terminal.Fprintf(l.out, "  %s| %s\n", l.name, terminal.Lines(strings.TrimSuffix(string(line), "\r")))
}
