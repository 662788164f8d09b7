package before

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/builtins"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/dependents"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/kit/emulation"
	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
	"github.com/gatehouse-dev/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/internal/server/judging/webhookservices"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/replicas/v1alpha1"
)

type explainOptions struct {
	cluster *command.Cluster
	// object is KIND/NAME. file has the sent objects, and old the stored object.
	object, file, old      string
	operation, subresource string
	as                     string
	asGroups               []string
	dryRun, all            bool
	registrations, with    []string
	output                 string
	// tried are the policies and bindings of --with, and triedAs their encoding for the server.
	tried                  []runtime.Object
	triedAs                []runtime.RawExtension
	expand, exitCode, rbac bool
	// connect makes explain connect to webhooks and verify their certificates. serviceAddresses are the
	// addresses of their services.
	connect          bool
	serviceAddresses []string
	addresses        webhookservices.Addresses
	// world reads the webhook configurations, policies and initializers.
	world reader
	// enable, disable and configFile are flags of the cluster's API server.
	enable, disable []string
	configFile      string
	release         command.Release
	enforcer        command.Enforcer
}

// NewExplain returns the command gatehouse explain.
func NewExplain(streams command.Streams) *cobra.Command {
	return newExplainCommand(func(ctx context.Context, o *explainOptions) error { return o.run(ctx, streams) })
}

func newExplainCommand(run func(context.Context, *explainOptions) error) *cobra.Command {
	o := &explainOptions{}
	cmd := &cobra.Command{
		Use:   "explain (-f FILE | KIND/NAME)",
		Short: "Show what admission would do with a request",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return command.Usagef("unexpected argument %q", args[1])
			}
			switch {
			case len(args) == 0:
			case o.file == "" && isPath(args[0]):
				o.file = args[0]
			default:
				o.object = args[0]
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.complete(); err != nil {
				return err
			}
			return run(cmd.Context(), o)
		},
	}
	command.AddSection(cmd, "Request", func(f *pflag.FlagSet) {
		f.StringVarP(&o.file, "filename", "f", "", "`file` or directory with the objects that would be sent; - is standard input")
		f.StringVar(&o.operation, "operation", "", "CREATE, UPDATE, DELETE or CONNECT (default CREATE, UPDATE for KIND/NAME alone, and the usual one of a subresource)")
		f.StringVar(&o.subresource, "subresource", "", "subresource that would be written, such as status")
		f.StringVar(&o.old, "old", "", "`file` with the object as it is stored (default: it is read)")
		f.StringVar(&o.as, "as", "", "`user` who would make the request (default you)")
		f.StringSliceVar(&o.asGroups, "as-group", nil, "`group` of that user; may be repeated")
		f.BoolVar(&o.dryRun, "dry-run", false, "explain a dry run")
		f.BoolVar(&o.expand, "expand", true, "explain what controllers create for a workload, too")
	})
	command.AddSection(cmd, "What if", func(f *pflag.FlagSet) {
		f.StringArrayVar(&o.with, "with", nil, "`path` of policies and bindings that count as registered, each instead of the one of its name; may be repeated")
	})
	command.AddSection(cmd, "Webhooks", func(f *pflag.FlagSet) {
		f.BoolVar(&o.connect, "connect", false, "connect to each webhook of the plan from here, to look at its certificate; no request is sent")
		f.StringArrayVar(&o.serviceAddresses, "service-address", nil, "address of a service whose webhook runs outside of the cluster, as NAMESPACE/NAME[:PORT]=HOST:PORT; may be repeated")
	})
	command.AddSection(cmd, "Output", func(f *pflag.FlagSet) {
		f.BoolVar(&o.all, "all", false, "include steps that do not apply, with the reason, and each plugin that allows the request")
		command.Choose(f, &o.output, "output", "o", "text", "text, json, yaml, html (a page) or markdown", "text", "json", "yaml", "html", "markdown")
		f.BoolVar(&o.exitCode, "exit-code", false, "exit with 3 if a request would be rejected, and with 4 if it would be unless something that cannot be seen changes the object")
		f.BoolVar(&o.rbac, "rbac", false, "print the ClusterRole that explaining needs, and do nothing else")
	})
	command.AddSection(cmd, "The API server of another cluster", func(f *pflag.FlagSet) {
		f.StringSliceVar(&o.enable, "enable-admission-plugins", nil, "`plugins` that it runs besides the default ones")
		f.StringSliceVar(&o.disable, "disable-admission-plugins", nil, "default `plugins` that it does not run")
		f.StringVar(&o.configFile, "admission-control-config-file", "", "`file` with the configuration of its plugins")
	})
	command.AddSection(cmd, "Files instead of a server", func(f *pflag.FlagSet) {
		o.enforcer.AddFlag(f, "from the cluster, or with --registrations kubernetes")
		o.release.AddFlag(f, "from the cluster, or with --registrations this program's")
		f.StringSliceVar(&o.registrations, "registrations", nil,
			"`path` of a file or directory with webhook configurations, admission policies, params, namespaces and custom resource definitions; may be repeated")
	})
	o.cluster = command.NewCluster(cmd)
	command.CompletesObject(cmd, o.cluster.KindNames, o.cluster.ObjectNames(cmd))
	command.Completes(cmd, "operation", command.Values("CREATE", "UPDATE", "DELETE", "CONNECT"))
	command.Completes(cmd, "enable-admission-plugins", server.PluginNames)
	command.Completes(cmd, "disable-admission-plugins", server.PluginNames)
	return cmd
}

// isPath reports whether an argument is an existing file or directory rather than KIND/NAME.
func isPath(arg string) bool {
	kind, name, ok := strings.Cut(arg, "/")
	if ok && !strings.Contains(name, "/") && name != "" && kind != "." && kind != ".." && kind != "" && !manifests.IsManifest(arg) {
		return false
	}
	_, err := os.Stat(arg)
	return err == nil || arg == "-"
}

// complete validates the options and derives others from them.
func (o *explainOptions) complete() error {
	if o.rbac {
		return nil
	}
	if o.file == "" && o.object == "" {
		return command.Usagef("name a request: -f FILE or KIND/NAME")
	}
	if kind, name, ok := strings.Cut(o.object, "/"); o.object != "" && (!ok || kind == "" || name == "" || strings.Contains(name, "/")) {
		return command.Usagef("%q is not of the form KIND/NAME, and there is no file of this name", o.object)
	}
	switch o.operation = strings.ToUpper(o.operation); {
	case o.operation != "":
	case o.subresource != "" || o.file == "":
		o.operation = offline.OperationOf(o.subresource)
	default:
		o.operation = "CREATE"
	}
	if err := command.OneOf("operation", o.operation, "CREATE", "UPDATE", "DELETE", "CONNECT"); err != nil {
		return err
	}
	var err error
	if o.addresses, err = webhookservices.ParseAddresses(o.serviceAddresses); err != nil {
		return command.UsageError{Err: err}
	}
	switch {
	case len(o.serviceAddresses) > 0 && !o.connect:
		return command.Usagef("--service-address needs --connect")
	case o.operation == "CREATE" && o.file == "":
		return command.Usagef("a CREATE needs the object: -f FILE")
	case o.operation == "CONNECT" && o.subresource == "":
		return command.Usagef("a CONNECT needs --subresource, as in pod/web --subresource exec")
	case o.old != "" && (o.operation == "CREATE" || o.operation == "CONNECT"):
		return command.Usagef("--old is for UPDATE and DELETE, not for %s", o.operation)
	case len(o.asGroups) > 0 && o.as == "":
		return command.Usagef("--as-group needs --as")
	case o.enforcer.Wanted != "" && len(o.registrations) == 0:
		return command.Usagef("--for says for which server files are, and a cluster says that itself: name the files with --registrations, or leave out --for")
	case len(o.registrations) > 0 && o.cluster.Flags.KubeConfig+o.cluster.Flags.Context != "":
		return command.Usagef("--registrations explains without a server: leave out --kubeconfig and --context")
	case len(o.registrations) > 0 && len(o.with) > 0:
		return command.Usagef("--with tries policies on a cluster, and --registrations needs none: name all files with --registrations")
	case len(o.registrations) > 0 && o.ofServer():
		return command.Usagef("--registrations explains without a server, and files do not say which plugins it runs: leave out --enable-admission-plugins, --disable-admission-plugins and --admission-control-config-file")
	}
	return nil
}

// ofServer reports whether the command line describes the API server's flags.
func (o *explainOptions) ofServer() bool {
	return len(o.enable)+len(o.disable) > 0 || o.configFile != ""
}

// explainer returns the explanation of a request, and the object as it would be stored; nil if that is unknown.
type explainer func(ctx context.Context, q *offline.Request) (*v1alpha1.AdmissionExplanation, *unstructured.Unstructured, error)

func (o *explainOptions) run(ctx context.Context, streams command.Streams) error {
	if o.rbac {
		return printRBAC(streams.Out, "gatehouse-explain", explainComment, builtins.Rules())
	}
	// The logs of plugins that start are not useful here.
	if err := command.DiscardLogs(ctx); err != nil {
		return err
	}
	if err := o.readTried(); err != nil {
		return err
	}
	shown := terminal.NewProgress(streams.Err, command.ReadingCluster, command.ProgressAfter)
	defer shown.End()
	explain, kinds, namespace, err := o.explainer(ctx)
	if err != nil {
		return err
	}
	requests, err := o.requests(command.Input(ctx, streams.In), kinds, namespace)
	if err != nil {
		return err
	}
	var found []*v1alpha1.AdmissionExplanation
	var makers []string
	for i, q := range requests {
		shown.Set(fmt.Sprintf("Explained %d of %s", i, report.Count(len(requests), "request")))
		e, made, err := explain(ctx, q)
		if err != nil {
			return err
		}
		found, makers = append(found, e), append(makers, "")
		if !o.expands(q) || made == nil {
			continue
		}
		dependents, err := dependents.Of(made)
		if err != nil {
			return fmt.Errorf("what controllers create for %s %s: %w", made.GetKind(), made.GetName(), err)
		}
		for i := range dependents {
			d := &dependents[i]
			object, err := d.Unstructured()
			if err != nil {
				return err
			}
			e, _, err := explain(ctx, &offline.Request{
				Operation: "CREATE", Kind: kinds.Of(object.GroupVersionKind()), Namespace: q.Namespace, Name: object.GetName(),
				Object: object, User: d.By, DryRun: q.DryRun, All: q.All,
			})
			if err != nil {
				return err
			}
			found, makers = append(found, e), append(makers, d.Of)
		}
	}
	if o.connect {
		if err := o.connectTo(ctx, found, shown); err != nil {
			return err
		}
	}
	shown.End()
	switch o.output {
	case "json", "yaml":
		err = printExplanations(streams.Out, o.output, found)
	case "text":
		o.release.Print(streams.Out)
		fallthrough
	default:
		err = viewOf(found, makers, o.all).Format(streams.Out, o.output)
	}
	switch {
	case err != nil || !o.exitCode:
		return err
	case slices.ContainsFunc(found, rejected):
		return command.ExitStatus(command.ExitRejected)
	case slices.ContainsFunc(found, likely):
		return command.ExitStatus(command.ExitLikely)
	}
	return nil
}

// readTried reads the policies and bindings of --with.
func (o *explainOptions) readTried() error {
	if len(o.with) == 0 {
		return nil
	}
	objects, written, err := offline.ReadTried(o.with)
	if err != nil {
		return fmt.Errorf("--with: %w", err)
	}
	o.tried = objects
	for _, u := range written {
		raw, err := json.Marshal(u)
		if err != nil {
			return err
		}
		o.triedAs = append(o.triedAs, runtime.RawExtension{Raw: raw})
	}
	return nil
}

// expands reports whether explain also covers the objects that controllers create after a request.
func (o *explainOptions) expands(q *offline.Request) bool {
	return o.expand && q.Subresource == "" && (q.Operation == "CREATE" || q.Operation == "UPDATE")
}

// explainer chooses the source of the explanation (server, cluster or files), discovers the kinds, and returns
// the default namespace.
func (o *explainOptions) explainer(ctx context.Context) (explainer, *offline.Kinds, string, error) {
	if len(o.registrations) > 0 {
		if err := o.release.Choose(emulation.Cluster{}); err != nil {
			return nil, nil, "", err
		}
		world, err := builtins.Read(o.registrations)
		if err != nil {
			return nil, nil, "", err
		}
		namespace := o.cluster.Flags.Namespace
		if namespace == "" {
			namespace = metav1.NamespaceDefault
		}
		world.Fields = o.release.Fields(nil)
		world.Registrations.Kubernetes = !o.enforcer.Gatehouse(nil)
		o.world = always(world, nil)
		return o.offline(world, nil), world.Kinds, namespace, nil
	}
	flags := builtins.Flags{Selection: admission.Selection{Enable: o.enable, Disable: o.disable}, Release: o.release.Wanted}
	if o.configFile != "" {
		var err error
		if flags.Configuration, err = admission.LoadConfiguration(o.configFile); err != nil {
			return nil, nil, "", command.Usagef("--admission-control-config-file: %w", err)
		}
	}
	config, err := o.cluster.Open()
	if err != nil {
		return nil, nil, "", err
	}
	namespace, err := o.cluster.Namespace()
	if err != nil {
		return nil, nil, "", err
	}
	kinds, err := offline.Discover(config)
	if err != nil {
		return nil, nil, "", err
	}
	if o.old == "" {
		if ask, err := asksServer(ctx, config, kinds); err != nil || ask {
			if ask && o.ofServer() {
				return nil, nil, "", command.Usagef("this Gatehouse server explains by itself, and knows its plugins: leave out --enable-admission-plugins, --disable-admission-plugins and --admission-control-config-file")
			}
			if ask && o.release.Wanted != "" {
				return nil, nil, "", command.Usagef("this Gatehouse server explains by itself, as the release that it behaves as: leave out --kubernetes-version")
			}
			o.world = func(ctx context.Context) (*offline.World, *rest.Config, error) {
				world, err := offline.Connect(ctx, config, kinds)
				return world, config, err
			}
			return o.server(config, kinds), kinds, namespace, err
		}
	}
	if err := o.release.ChooseFor(config); err != nil {
		return nil, nil, "", err
	}
	world, err := offline.Connect(ctx, config, kinds)
	if err != nil {
		return nil, nil, "", err
	}
	world.Tried = o.tried
	o.world = always(world, config)
	if err := builtins.Enable(ctx, world, config, flags); err != nil {
		return nil, nil, "", err
	}
	if line := o.release.Line; line != "" && o.output != "text" {
		// The text output prints the line at the top.
		world.Notes = append([]string{line}, world.Notes...)
	}
	return o.offline(world, func() user.Info { return offline.Caller(ctx, config) }), kinds, namespace, nil
}

// explanations is the resource of explanations on a Gatehouse server.
const explanations = "admissionexplanations"

// asksServer reports whether the server serves explanations and the caller may create them.
func asksServer(ctx context.Context, config *rest.Config, kinds *offline.Kinds) (bool, error) {
	group := v1alpha1.SchemeGroupVersion.Group
	if _, ok := kinds.Served(group, explanations); !ok {
		return false, nil
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return false, err
	}
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "create", Group: group, Resource: explanations},
	}}
	review, err = client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if apierrors.IsForbidden(err) {
		return false, nil
	}
	return err == nil && review.Status.Allowed, err
}

// server explains by asking the server. The policies behind the webhooks of policy engines are read by this
// process, with the caller's rights.
func (o *explainOptions) server(config *rest.Config, kinds *offline.Kinds) explainer {
	// reporting lists the main server first, then the servers behind it.
	var reporting []schema.GroupVersion
	return func(ctx context.Context, q *offline.Request) (*v1alpha1.AdmissionExplanation, *unstructured.Unstructured, error) {
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, nil, err
		}
		asked, err := o.explanation(q)
		if err != nil {
			return nil, nil, err
		}
		asked.Spec.Registrations = o.triedAs
		at, note := v1alpha1.SchemeGroupVersion, ""
		if strings.Contains(q.Kind.Resource.Group, ".") {
			if reporting == nil {
				objects, err := dynamic.NewForConfig(config)
				if err != nil {
					return nil, nil, err
				}
				reporting = append([]schema.GroupVersion{at}, command.Reporting(ctx, objects)...)
			}
			if i := slices.IndexFunc(reporting, func(gv schema.GroupVersion) bool { return gv.Group == q.Kind.Resource.Group }); i > 0 {
				at = reporting[i]
			}
		}
		e, err := ask(ctx, client, at, asked)
		if at != v1alpha1.SchemeGroupVersion && err != nil {
			// The main server names the server that admits the request.
			note, at = fmt.Sprintf("effects of the server of %s: it does not explain the request: %v", at, err), v1alpha1.SchemeGroupVersion
			e, err = ask(ctx, client, at, asked)
		}
		if q.User != nil && apierrors.IsForbidden(err) {
			// The user is a controller, which the caller may not impersonate.
			asked.Spec.User, asked.Spec.Groups = "", nil
			if e, err = ask(ctx, client, at, asked); err == nil && e.Status.Plan != nil {
				e.Status.Plan.Notes = append(e.Status.Plan.Notes, "explained as you: to explain it as "+q.User.GetName()+" you need to be allowed to impersonate that user and its groups")
			}
		}
		if err != nil {
			return nil, nil, err
		}
		if note != "" && e.Status.Plan != nil {
			e.Status.Plan.Notes = append(e.Status.Plan.Notes, note)
		}
		if len(o.triedAs) > 0 && len(e.Status.Tried) == 0 {
			return nil, nil, errors.New("--with: the server is too old to try policies that are not registered")
		}
		if e.Status.Plan != nil {
			engines, err := offline.NewEngines(config, kinds)
			if err != nil {
				return nil, nil, err
			}
			engines.Annotate(ctx, e.Status.Plan)
			e.Status.Plan.Notes = append(e.Status.Plan.Notes, offline.Missing(e.Status.Plan)...)
		}
		made := q.Object
		if made == nil && o.expands(q) {
			if made, err = offline.Stored(ctx, config, q); err != nil {
				return nil, nil, err
			}
		}
		return e, made, nil
	}
}

// ask requests an explanation from the server of a group version.
func ask(ctx context.Context, client kubernetes.Interface, gv schema.GroupVersion, asked *v1alpha1.AdmissionExplanation) (*v1alpha1.AdmissionExplanation, error) {
	body, err := json.Marshal(asked)
	if err != nil {
		return nil, err
	}
	result := client.Discovery().RESTClient().Post().AbsPath("/apis", gv.Group, gv.Version, explanations).
		SetHeader("Content-Type", runtime.ContentTypeJSON).SetHeader("Accept", runtime.ContentTypeJSON).Body(body).Do(ctx)
	// The error of the API server names the problem.
	if err := result.Error(); err != nil {
		return nil, err
	}
	answer, err := result.Raw()
	if err != nil {
		return nil, err
	}
	e := &v1alpha1.AdmissionExplanation{}
	return e, json.Unmarshal(answer, e)
}

// explanation builds the AdmissionExplanation for a request.
func (o *explainOptions) explanation(q *offline.Request) (*v1alpha1.AdmissionExplanation, error) {
	e := &v1alpha1.AdmissionExplanation{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "AdmissionExplanation"},
		Spec: v1alpha1.AdmissionExplanationSpec{
			Operation: q.Operation, Resource: metav1.GroupVersionResource(q.Kind.Resource), Subresource: q.Subresource,
			Namespace: q.Namespace, Name: q.Name, DryRun: q.DryRun, User: o.as, Groups: o.asGroups, All: q.All,
		},
	}
	if q.User != nil {
		// The user is a controller, not the caller.
		e.Spec.User, e.Spec.Groups, e.Spec.AssumeRights = q.User.GetName(), q.User.GetGroups(), true
	}
	if q.Operation == "CREATE" && q.Subresource == "" {
		// A create names the object in its body.
		e.Spec.Name = ""
	}
	if q.Object != nil && q.Operation != "DELETE" {
		raw, err := json.Marshal(q.Object)
		if err != nil {
			return nil, err
		}
		e.Spec.Object = &runtime.RawExtension{Raw: raw}
	}
	return e, nil
}

// offline explains from the objects of a cluster or of files. caller returns the current user; nil if the user
// is unknown.
func (o *explainOptions) offline(world *offline.World, caller func() user.Info) explainer {
	return func(ctx context.Context, q *offline.Request) (*v1alpha1.AdmissionExplanation, *unstructured.Unstructured, error) {
		e, err := o.explanation(q)
		if err != nil {
			return nil, nil, err
		}
		switch {
		case q.User != nil:
			// Controllers have the rights that the cluster grants them.
		case o.as != "":
			groups := slices.Clone(o.asGroups)
			if !slices.Contains(groups, user.AllAuthenticated) && o.as != user.Anonymous {
				groups = append(groups, user.AllAuthenticated)
			}
			q.User, q.Access = &user.DefaultInfo{Name: o.as, Groups: groups}, offline.UserAccess
		case caller != nil:
			q.User, q.Access = caller(), offline.OwnAccess
		}
		var made *unstructured.Unstructured
		e.Status.Plan, made, err = world.Try(ctx, q)
		if err != nil {
			e.Status.Error = world.Refusal(ctx, q, err)
		}
		switch {
		case e.Status.Error != nil:
			return e, nil, nil
		case apierrors.IsForbidden(err):
			return nil, nil, fmt.Errorf("explaining this %s needs the stored object: you need to be allowed to get it, or give it with --old: %w", q.Operation, err)
		case apierrors.IsNotFound(err):
			return nil, nil, fmt.Errorf("explaining this %s needs the stored object: %w; give it with --old", q.Operation, err)
		}
		return e, made, err
	}
}

// requests returns the requests that the command line describes.
func (o *explainOptions) requests(in io.Reader, kinds *offline.Kinds, namespace string) ([]*offline.Request, error) {
	objects, err := read(o.file, in)
	if err != nil {
		return nil, err
	}
	old, err := read(o.old, in)
	if err != nil {
		return nil, err
	}
	if len(old) > 1 || len(old) == 1 && len(objects) > 1 {
		return nil, command.Usagef("--old needs exactly one object in -f and one in --old")
	}
	if o.object != "" && len(objects) > 1 {
		return nil, command.Usagef("%s has %d objects, but %s names one", o.file, len(objects), o.object)
	}
	if len(objects) == 0 {
		if o.file != "" {
			return nil, fmt.Errorf("%s has no objects", o.file)
		}
		objects = append(objects, nil)
	}
	requests := make([]*offline.Request, len(objects))
	for i, object := range objects {
		q := &offline.Request{Operation: o.operation, Subresource: o.subresource, Object: object, DryRun: o.dryRun, All: o.all}
		if len(old) > 0 {
			q.Old = old[0]
		}
		if err := o.about(q, kinds, namespace); err != nil {
			return nil, err
		}
		if q.Operation == "CONNECT" {
			// A file names the object to connect to. Clients send options.
			q.Object = nil
		}
		if q.Operation == "DELETE" && q.Old == nil && len(o.registrations) > 0 {
			// Without a server, the file has the object to delete.
			q.Old = q.Object
		}
		requests[i] = q
	}
	return requests, nil
}

// about sets the kind, namespace and name of a request.
func (o *explainOptions) about(q *offline.Request, kinds *offline.Kinds, namespace string) (err error) {
	kind, name, named := strings.Cut(o.object, "/")
	switch {
	case named:
		if q.Kind, err = kinds.Named(kind); err != nil {
			return err
		}
		q.Name = name
		if q.Object != nil && o.subresource == "" && q.Object.GetKind() == q.Kind.Kind.Kind {
			q.Kind = kinds.Of(q.Object.GroupVersionKind())
		}
	case o.operation == "CONNECT":
		q.Kind = kinds.Of(q.Object.GroupVersionKind())
	case o.subresource == "" || hasSubresource(kinds.Of(q.Object.GroupVersionKind()), o.subresource):
		q.Kind = kinds.Of(q.Object.GroupVersionKind())
	default:
		if q.Kind, err = kinds.Parent(o.subresource, q.Object.GroupVersionKind()); err != nil {
			return fmt.Errorf("%s: %w", o.file, err)
		}
	}
	if q.Object != nil {
		if q.Name != "" && q.Object.GetName() != "" && q.Object.GetName() != q.Name {
			return fmt.Errorf("the object in %s is named %q, not %q", o.file, q.Object.GetName(), q.Name)
		}
		if q.Name == "" {
			q.Name = q.Object.GetName()
		}
	}
	if !q.Kind.Namespaced {
		return nil
	}
	q.Namespace = namespace
	if q.Object != nil && q.Object.GetNamespace() != "" {
		asked := o.cluster.Flags.Namespace
		if q.Namespace = q.Object.GetNamespace(); asked != "" && asked != q.Namespace {
			return fmt.Errorf("the object in %s is in namespace %q, and --namespace is %q", o.file, q.Namespace, asked)
		}
	}
	return nil
}

func hasSubresource(k *offline.Kind, name string) bool { return k.Takes(name) == k.Kind }

// read returns the objects of a file or directory, or of standard input for "-"; nil for "".
func read(file string, in io.Reader) ([]*unstructured.Unstructured, error) {
	var data []byte
	var err error
	switch file {
	case "":
		return nil, nil
	case "-":
		file = "standard input"
		data, err = files.ReadFrom(in, files.Objects)
	default:
		if info, err := os.Stat(file); err == nil && info.IsDir() {
			return offline.ObjectsIn(file)
		}
		data, err = files.ReadArgument(file, files.Objects)
	}
	if err != nil {
		return nil, err
	}
	return offline.Objects(file, data)
}
