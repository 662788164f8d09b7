package dev

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/gatehouse-dev/gatehouse/internal/commands/dev/container"
	"github.com/gatehouse-dev/gatehouse/internal/commands/dev/image"
)

// content are ConfigMaps and Secrets. It is safe for concurrent use.
type content struct {
	mu      sync.Mutex
	objects map[string]map[string][]byte
}

func contentKey(kind, namespace, name string) string { return kind + " " + namespace + "/" + name }

// add adds the ConfigMaps and Secrets among objects.
func (c *content) add(objects []*unstructured.Unstructured) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.objects == nil {
		c.objects = map[string]map[string][]byte{}
	}
	for _, u := range objects {
		kind := u.GetKind()
		if u.GetAPIVersion() != "v1" || kind != "ConfigMap" && kind != "Secret" {
			continue
		}
		found := map[string][]byte{}
		for field, encoded := range map[string]bool{"data": kind == "Secret", "binaryData": true, "stringData": false} {
			values, _, _ := unstructured.NestedStringMap(u.Object, field)
			for key, value := range values {
				if !encoded {
					found[key] = []byte(value)
				} else if decoded, err := base64.StdEncoding.DecodeString(value); err == nil && found[key] == nil {
					found[key] = decoded
				}
			}
		}
		c.objects[contentKey(kind, nameOf(u).Namespace, u.GetName())] = found
	}
}

// of returns the content in a namespace.
func (c *content) of(namespace string) container.Data {
	return func(kind, name string) (map[string][]byte, bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		found, ok := c.objects[contentKey(kind, namespace, name)]
		return found, ok
	}
}

// choosePrograms decides how the programs are built and started. A program that is not found here is left out if another
// one is found: charts have programs of other projects.
func (s *session) choosePrograms() (found []*program, err error) {
	var problems []error
	for _, t := range s.project.targets {
		p, err := newProgram(t, s.settings(t, len(s.project.targets) == 1), slices.Concat(s.Paths, s.Kustomizations, []string{s.Chart}))
		if err != nil {
			problems = append(problems, err)
			s.absent = append(s.absent, t.services[:min(1, len(t.services))]...)
			continue
		}
		found = append(found, p)
	}
	if len(found) == 0 {
		err = problems[0]
		if len(problems) > 1 {
			var services []string
			for _, service := range s.absent {
				services = append(services, service.String())
			}
			err = fmt.Errorf("%w; or run one program, by --service with its service: %s", err, strings.Join(services, ", "))
		}
		return nil, err
	}
	s.project.leave(s.absent)
	for _, err := range problems {
		reason, _, _ := strings.Cut(err.Error(), image.Remedy)
		s.project.remarks = append(s.project.remarks, fmt.Sprintf("Left out: %s. Calls of its webhooks fail; if it is a program of this project, name its command in the section that --print prints.", reason))
	}
	for _, p := range found {
		name := ""
		if len(found) > 1 {
			name = p.name()
		}
		p.output = s.Output(name)
	}
	return found, nil
}

// settings returns the settings of a program. alone reports whether it is the only program.
func (s *session) settings(t *target, alone bool) Program {
	found := Program{}
	for _, p := range s.Programs {
		named := slices.ContainsFunc(t.services, func(service types.NamespacedName) bool { return service.String() == p.Service })
		if named || p.Service == "" && alone {
			found = p
		}
	}
	if len(s.Command) > 0 {
		found.Command = s.Command
	}
	found.Build = cmp.Or(s.Build, found.Build)
	return found
}

// programOf returns the program of a service; nil for none.
func (s *session) programOf(service types.NamespacedName) *program {
	for _, p := range s.programs {
		if slices.Contains(p.services, service) || service.Name == "" {
			return p
		}
	}
	return nil
}

// authorityConfigMap is the ConfigMap with the certificate authority of the server, in each namespace.
const authorityConfigMap = "kube-root-ca.crt"

// describe describes the programs, and prints the assumptions about each.
func (s *session) describe(ctx context.Context) error {
	admin := s.stage.Address()
	authority := admin.Admin.CAData
	if len(authority) == 0 {
		var err error
		if authority, err = os.ReadFile(admin.Admin.CAFile); err != nil {
			return err
		}
	}
	s.content.add(s.project.objects)
	for _, p := range s.programs {
		root := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"ca.crt": string(authority)}}}
		root.SetNamespace(p.namespace())
		root.SetName(authorityConfigMap)
		s.content.add([]*unstructured.Unstructured{root})
		kubeconfig := admin.Kubeconfig
		if s.AsServiceAccount {
			kubeconfig = filepath.Join(p.home, "kubeconfig")
			if err := writeKubeconfig(kubeconfig, admin.URL, authority, p.hostPath(container.ServiceAccountPath+"/token"), p.namespace()); err != nil {
				return err
			}
		}
		if err := s.furnish(p, kubeconfig, s.tokens(ctx, p)); err != nil {
			return err
		}
		if p.workload != nil {
			s.sayAssumed(p)
		}
	}
	return nil
}

// tokens returns a function for the tokens of a program; nil for a program without a pod.
func (s *session) tokens(ctx context.Context, p *program) func(audience string) ([]byte, error) {
	if p.pod == nil || !p.created {
		return nil
	}
	return func(audience string) ([]byte, error) {
		token, err := s.token(ctx, p.pod, audience)
		if err != nil {
			s.sayOnce("%s has no token: %s.", titleOf(p.workload), strings.TrimRight(err.Error(), "."))
			return nil, nil
		}
		return token, nil
	}
}

// writeKubeconfig writes a kubeconfig with the token of a service account.
func writeKubeconfig(file, url string, authority []byte, token, namespace string) error {
	config := clientcmdapi.NewConfig()
	const name = "dev"
	config.Clusters[name] = &clientcmdapi.Cluster{Server: url, CertificateAuthorityData: authority}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{TokenFile: token}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: namespace}
	config.CurrentContext = name
	return clientcmd.WriteToFile(*config, file)
}

// furnish writes the files of a program and sets its environment and its command line.
func (s *session) furnish(p *program, kubeconfig string, tokens func(audience string) ([]byte, error)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	d, err := p.describe(s.content.of(p.namespace()), tokens)
	if err != nil {
		return err
	}
	p.kubeconfig = cmp.Or(kubeconfig, p.kubeconfig)
	filled := map[string]string{"KUBECONFIG": p.kubeconfig, "TMPDIR": p.temporaries, "CERT_DIR": p.files, "PORT": strconv.Itoa(p.port)}
	if slices.Contains(d.places.There, container.ServiceAccountPath) {
		server, err := url.Parse(s.stage.Address().URL)
		if err != nil {
			return err
		}
		filled[inCluster+"HOST"], filled[inCluster+"PORT"] = server.Hostname(), server.Port()
	}
	p.set(d, filled)
	p.described = d
	return nil
}

// redescribe applies changed manifests to the programs, and reports whether one of them must start again.
func (s *session) redescribe(ctx context.Context) (restart bool, err error) {
	s.content.add(s.project.objects)
	for i, p := range s.programs {
		if p.pod == nil || i >= len(s.project.targets) || s.project.targets[i].container == nil {
			continue
		}
		now, err := newProgram(s.project.targets[i], p.settings, slices.Concat(s.Paths, s.Kustomizations, []string{s.Chart}))
		if err != nil {
			s.Say("%v", err)
			continue
		}
		before, environment := slices.Clone(p.recipe.run), slices.Clone(p.env)
		p.mu.Lock()
		p.target, p.arguments, p.variables, p.source = now.target, now.arguments, now.variables, now.source
		if !slices.Equal(now.recipe.given, p.recipe.given) || !slices.Equal(now.recipe.base, p.recipe.base) {
			now.recipe.built = p.recipe.built
			p.recipe = now.recipe
		}
		node := p.pod.Spec.NodeName
		p.pod.Spec = *p.template.Spec.DeepCopy()
		p.pod.Spec.NodeName = node
		p.mu.Unlock()
		if err := s.furnish(p, "", s.tokens(ctx, p)); err != nil {
			return false, err
		}
		restart = restart || !slices.Equal(before, p.recipe.run) || !slices.Equal(environment, p.env)
	}
	return restart, nil
}

// refresh writes the files of the programs that have a changed ConfigMap or Secret, as a kubelet does.
func (s *session) refresh(ctx context.Context, u *unstructured.Unstructured) {
	s.content.add([]*unstructured.Unstructured{u})
	for _, p := range s.programs {
		p.mu.Lock()
		var err error
		if p.container != nil && p.namespace() == u.GetNamespace() && slices.Contains(volumesOf(&p.template.Spec, u.GetKind()), u.GetName()) {
			_, err = p.describe(s.content.of(p.namespace()), s.tokens(ctx, p))
		}
		p.mu.Unlock()
		if err != nil && ctx.Err() == nil {
			s.Say("%s %s is not written to the files of the program: %v", u.GetKind(), u.GetName(), err)
		}
	}
}

// sayAssumed prints the assumptions about a program, a line each, without values of Secrets.
func (s *session) sayAssumed(p *program) {
	d := p.described
	s.sayOnce("%s runs as this program:", titleOf(p.workload))
	line := func(name, format string, args ...any) { s.Say("  %-12s %s", name, fmt.Sprintf(format, args...)) }
	found := ""
	if p.found != "" {
		found = " (" + p.found + ")"
	}
	line("program", "%s%s", p.commandLine(), found)
	line("directory", "%s", cmp.Or(p.recipe.dir, "."))
	line("port", "%d", p.port)
	var names []string
	for _, v := range d.Environment {
		name := v.Name
		if v.From != "" {
			name += " (" + v.From + ")"
		}
		names = append(names, name)
	}
	if len(names) > 0 {
		line("environment", "%s", strings.Join(names, ", "))
	}
	for _, m := range d.Mounts {
		if m.Path == container.ServiceAccountPath {
			continue
		}
		here := " is " + p.hostPath(m.Path)
		if p.placed(m.Path) {
			here = ""
			if also := p.inProject(m.Path); also != "" {
				here = " and " + also
			}
		}
		line("files", "%s%s: %s", m.Path, here, cmp.Or(m.From, "an empty directory"))
	}
	for _, from := range slices.Sorted(maps.Keys(d.replaced)) {
		line("replaced", "%s in %s", from, strings.Join(d.replaced[from], ", "))
	}
	for _, m := range d.Mounts {
		if p.unreachable(m) {
			line("unreachable", "%s", p.remedy(m))
		}
	}
	for _, text := range slices.Concat(p.notes, d.LeftOut) {
		line("left out", "%s", text)
	}
}

// unreachable reports whether the program can find the files of a mount only at the path of the container. A Secret may
// get its files later. Programs look for temporary files in $TMPDIR, unless a source file names another directory.
func (p *program) unreachable(m container.Mount) bool {
	hasFiles := len(m.Files) > 0 || m.Secret
	if p.placed(m.Path) || m.Path == container.ServiceAccountPath || !hasFiles || len(p.described.replaced[m.Path]) > 0 {
		return false
	}
	return !inTemporaries(m.Path) || image.Naming(cmp.Or(p.recipe.dir, "."), m.Path) != ""
}

// remedy names the flag of the program for the path of a mount.
func (p *program) remedy(m container.Mount) string {
	dir := cmp.Or(p.recipe.dir, ".")
	flags := image.Flags(dir, m.Path)
	switch {
	case len(flags) > 0:
	case inTemporaries(m.Path):
		return fmt.Sprintf("%s names %s, and the files are at %s: have it begin with the directory of $TMPDIR", image.Naming(dir, m.Path), m.Path, p.hostPath(m.Path))
	default:
		return fmt.Sprintf("nothing in the manifests names %s: if the program looks there, name %s by an argument or a variable of the program", m.Path, p.hostPath(m.Path))
	}
	var words []string
	for _, f := range flags {
		value, _ := p.described.paths.Value(f.Default)
		words = append(words, "--"+f.Name+"="+value)
	}
	return fmt.Sprintf("the program looks at %s by default: add %s to it", m.Path, strings.Join(words, " "))
}

// mostForbidden bounds the sentences about missing rights.
const mostForbidden = 200

// forbidden reports a request that the service account of a program may not make.
func (s *session) forbidden(a authorizer.Attributes) {
	for _, p := range s.programs {
		if p.pod == nil {
			continue
		}
		p.mu.Lock()
		account := cmp.Or(p.pod.Spec.ServiceAccountName, "default")
		p.mu.Unlock()
		if a.GetUser() == nil || a.GetUser().GetName() != "system:serviceaccount:"+p.pod.Namespace+":"+account {
			continue
		}
		if !a.IsResourceRequest() {
			s.sayForbidden("The service account %s may not %s %s: a ClusterRole with nonResourceURLs allows it.", account, a.GetVerb(), a.GetPath())
			return
		}
		resource, scope := a.GetResource(), "the cluster: a ClusterRole"
		if sub := a.GetSubresource(); sub != "" {
			resource += "/" + sub
		}
		if a.GetNamespace() != "" {
			scope = "the namespace " + a.GetNamespace() + ": a Role"
		}
		s.sayForbidden("The service account %s may not %s %s in %s with apiGroups [%q], resources [%s] and verbs [%s] allows it.", account, a.GetVerb(), resource, scope,
			a.GetAPIGroup(), resource, a.GetVerb())
	}
}

// sayForbidden reports a missing right once, and at most mostForbidden of them.
func (s *session) sayForbidden(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.saying.Lock()
	if !s.said[text] {
		s.forbiddens++
	}
	n := s.forbiddens
	s.saying.Unlock()
	switch {
	case n <= mostForbidden:
		s.sayOnce("%s", text)
	case n == mostForbidden+1:
		s.sayOnce("Further missing rights are left out.")
	}
}
