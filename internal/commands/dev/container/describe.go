package container

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/api/v1/resource"
	"k8s.io/kubernetes/pkg/fieldpath"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"
)

// Data returns the content of a ConfigMap or a Secret; ok is false if there is none. kind is ConfigMap or Secret.
type Data func(kind, name string) (content map[string][]byte, ok bool)

// Description is a program as its container runs it.
type Description struct {
	// Environment are the variables, in which references such as $(NAME) are replaced.
	Environment []Variable
	Mounts      []Mount
	// LeftOut are sentences about parts that a process cannot have, or that the manifests lack.
	LeftOut []string
}

// Variable is an environment variable.
type Variable struct {
	Name, Value string
	// From is the source of the value, such as "Secret own, key token"; empty for a literal value.
	From string
}

// Mount is a volume at a path of the container.
type Mount struct {
	// Path is the absolute path in the container.
	Path string
	// Files are the contents by path below Path. The single key "" means that Path is a file.
	Files map[string][]byte
	// Tokens are the requested tokens of the service account by path below Path.
	Tokens map[string]corev1.ServiceAccountTokenProjection
	// From is the source of the files, such as "Secret own"; empty for an empty directory.
	From string
	// Secret reports whether a file comes from a Secret.
	Secret bool
}

// ServiceAccountPath is the directory of the credentials of a pod.
const ServiceAccountPath = "/var/run/secrets/kubernetes.io/serviceaccount"

// certManagerCSI is the driver of volumes with a certificate of cert-manager.
const certManagerCSI = "csi.cert-manager.io"

// Describe describes a container of a pod. pod has the fields that the downward API shows. A volume of cert-manager's CSI
// driver has the files of certificate.
func Describe(pod *corev1.Pod, c *corev1.Container, data Data, certificate map[string][]byte) *Description {
	d := &describer{pod: pod, container: c, data: data, certificate: certificate, found: &Description{}}
	expand := d.environment()
	for _, m := range c.VolumeMounts {
		d.mount(m, expand)
	}
	for _, other := range pod.Spec.Containers {
		if other.Name != c.Name {
			d.leave("container %s of the pod does not run here", other.Name)
		}
	}
	for _, first := range pod.Spec.InitContainers {
		d.leave("init container %s does not run here: %s", first.Name, cmp.Or(strings.Join(slices.Concat(first.Command, first.Args), " "), first.Image))
	}
	return d.found
}

// mostExpanded bounds the values that replace references in the environment or the arguments of a program, in bytes: a
// value may repeat another one, and so on. Linux permits no process more.
const mostExpanded = 2 << 20

// Expand returns words with references such as $(NAME) replaced by values, as a kubelet does.
func Expand(words []string, values map[string]string) []string {
	words = slices.Clone(words)
	expand := expander(values)
	for i := range words {
		words[i] = expand(words[i])
	}
	return words
}

// expander returns a function that replaces references in a text. It leaves references when there is no room for values.
func expander(values map[string]string) func(text string) string {
	valueOf, left := expansion.MappingFuncFor(values), mostExpanded
	return func(text string) string {
		return expansion.Expand(text, func(name string) string {
			value := valueOf(name)
			if left -= len(value); left < 0 {
				return "$(" + name + ")"
			}
			return value
		})
	}
}

type describer struct {
	pod         *corev1.Pod
	container   *corev1.Container
	data        Data
	certificate map[string][]byte
	found       *Description
}

func (d *describer) leave(format string, args ...any) {
	d.found.LeftOut = append(d.found.LeftOut, fmt.Sprintf(format, args...))
}

// environment adds the variables, and returns the function that replaces references to them.
func (d *describer) environment() (expand func(text string) string) {
	values := map[string]string{}
	expand = expander(values)
	add := func(v Variable) {
		d.found.Environment = slices.DeleteFunc(d.found.Environment, func(other Variable) bool { return other.Name == v.Name })
		d.found.Environment = append(d.found.Environment, v)
		values[v.Name] = v.Value
	}
	for _, from := range d.container.EnvFrom {
		kind, name, optional := "", "", (*bool)(nil)
		switch {
		case from.ConfigMapRef != nil:
			kind, name, optional = "ConfigMap", from.ConfigMapRef.Name, from.ConfigMapRef.Optional
		case from.SecretRef != nil:
			kind, name, optional = "Secret", from.SecretRef.Name, from.SecretRef.Optional
		default:
			continue
		}
		content, ok := d.data(kind, name)
		if !ok && (optional == nil || !*optional) {
			d.leave("the environment of %s %s, which is not in the manifests", kind, name)
		}
		for _, key := range slices.Sorted(maps.Keys(content)) {
			add(Variable{from.Prefix + key, string(content[key]), kind + " " + name + ", key " + key})
		}
	}
	for _, e := range d.container.Env {
		v := Variable{Name: e.Name, Value: expand(e.Value)}
		if e.ValueFrom != nil {
			var ok bool
			if v.Value, v.From, ok = d.value(e.ValueFrom); !ok {
				if v.From != "" {
					d.leave("$%s: %s", e.Name, v.From)
				}
				continue
			}
		}
		add(v)
	}
	return expand
}

// value returns the value of a source and describes the source. If there is no value, from is the reason; it is empty for
// an optional source.
func (d *describer) value(s *corev1.EnvVarSource) (value, from string, ok bool) {
	reference := func(kind, name, key string, optional *bool) (string, string, bool) {
		content, _ := d.data(kind, name)
		text, ok := content[key]
		from := fmt.Sprintf("%s %s, key %s", kind, name, key)
		switch {
		case ok:
			return string(text), from, true
		case optional != nil && *optional:
			return "", "", false
		}
		return "", from + " is not in the manifests", false
	}
	switch {
	case s.ConfigMapKeyRef != nil:
		return reference("ConfigMap", s.ConfigMapKeyRef.Name, s.ConfigMapKeyRef.Key, s.ConfigMapKeyRef.Optional)
	case s.SecretKeyRef != nil:
		return reference("Secret", s.SecretKeyRef.Name, s.SecretKeyRef.Key, s.SecretKeyRef.Optional)
	case s.FieldRef != nil:
		value, err := d.field(s.FieldRef.FieldPath)
		if err != nil {
			return "", err.Error(), false
		}
		return value, "the field " + s.FieldRef.FieldPath, true
	case s.ResourceFieldRef != nil:
		value, err := d.resource(s.ResourceFieldRef)
		if err != nil {
			return "", err.Error(), false
		}
		return value, "the field " + s.ResourceFieldRef.Resource, true
	}
	return "", "its source is of a kind that a process cannot have", false
}

// field returns a field of the pod, as the kubelet does.
func (d *describer) field(name string) (string, error) {
	status := &d.pod.Status
	switch name {
	case "spec.nodeName":
		return d.pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return d.pod.Spec.ServiceAccountName, nil
	case "status.hostIP", "status.hostIPs":
		return status.HostIP, nil
	case "status.podIP", "status.podIPs":
		return status.PodIP, nil
	}
	return fieldpath.ExtractFieldPathAsString(d.pod, name)
}

// resource returns a limit or request of a container; a limit that is not set is zero, since a process has none.
func (d *describer) resource(s *corev1.ResourceFieldSelector) (string, error) {
	c := d.container
	if s.ContainerName != "" && s.ContainerName != c.Name {
		at := slices.IndexFunc(d.pod.Spec.Containers, func(other corev1.Container) bool { return other.Name == s.ContainerName })
		if at < 0 {
			return "", fmt.Errorf("the pod has no container %s", s.ContainerName)
		}
		c = &d.pod.Spec.Containers[at]
	}
	return resource.ExtractContainerResourceValue(s, c)
}

// mount adds the files of a volume.
func (d *describer) mount(m corev1.VolumeMount, expand func(text string) string) {
	at := slices.IndexFunc(d.pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
	if at < 0 {
		d.leave("%s: the pod has no volume %s", m.MountPath, m.Name)
		return
	}
	found := Mount{Path: clean(m.MountPath), Files: map[string][]byte{}, Tokens: map[string]corev1.ServiceAccountTokenProjection{}}
	volume := &d.pod.Spec.Volumes[at].VolumeSource
	switch {
	case volume.ConfigMap != nil:
		d.keys(&found, "ConfigMap", volume.ConfigMap.Name, volume.ConfigMap.Items, volume.ConfigMap.Optional)
	case volume.Secret != nil:
		d.keys(&found, "Secret", volume.Secret.SecretName, volume.Secret.Items, volume.Secret.Optional)
	case volume.DownwardAPI != nil:
		d.downward(&found, volume.DownwardAPI.Items)
	case volume.Projected != nil:
		for _, source := range volume.Projected.Sources {
			d.projected(&found, source)
		}
	case volume.CSI != nil && volume.CSI.Driver == certManagerCSI:
		found.From, found.Secret = "a certificate of cert-manager", true
		maps.Copy(found.Files, d.certificate)
	case volume.EmptyDir != nil, volume.PersistentVolumeClaim != nil, volume.Ephemeral != nil:
	default:
		d.leave("%s: the files of the volume %s, which a process cannot have", m.MountPath, m.Name)
		return
	}
	if below := cmp.Or(expand(m.SubPathExpr), m.SubPath); below != "" {
		found.Files = under(found.Files, path.Clean(below))
	}
	d.found.Mounts = append(d.found.Mounts, found)
}

// under returns the files of a directory by path below it, or the file with this path as the key "".
func under(files map[string][]byte, dir string) map[string][]byte {
	found := map[string][]byte{}
	for name, content := range files {
		if rest, ok := strings.CutPrefix(name, dir); ok && (rest == "" || rest[0] == '/') {
			found[strings.TrimPrefix(rest, "/")] = content
		}
	}
	return found
}

// keys adds the content of a ConfigMap or a Secret.
func (d *describer) keys(m *Mount, kind, name string, items []corev1.KeyToPath, optional *bool) {
	content, ok := d.data(kind, name)
	required := optional == nil || !*optional
	if !ok && required {
		d.leave("%s: %s %s is not in the manifests", m.Path, kind, name)
	}
	m.from(kind + " " + name)
	m.Secret = m.Secret || kind == "Secret"
	if len(items) == 0 {
		maps.Copy(m.Files, content)
		return
	}
	for _, item := range items {
		if value, found := content[item.Key]; found {
			m.Files[path.Clean(item.Path)] = value
		} else if ok && required {
			d.leave("%s: %s %s has no key %s", m.Path, kind, name, item.Key)
		}
	}
}

// from adds a source.
func (m *Mount) from(source string) {
	if m.From != "" {
		m.From += ", "
	}
	m.From += source
}

// downward adds fields of the pod.
func (d *describer) downward(m *Mount, items []corev1.DownwardAPIVolumeFile) {
	m.from("fields of the pod")
	for _, item := range items {
		value, err := "", error(nil)
		switch {
		case item.FieldRef != nil:
			value, err = d.field(item.FieldRef.FieldPath)
		case item.ResourceFieldRef != nil:
			value, err = d.resource(item.ResourceFieldRef)
		}
		if err != nil {
			d.leave("%s: %v", path.Join(m.Path, item.Path), err)
			continue
		}
		m.Files[path.Clean(item.Path)] = []byte(value)
	}
}

// projected adds the files of a source of a projected volume.
func (d *describer) projected(m *Mount, s corev1.VolumeProjection) {
	switch {
	case s.ConfigMap != nil:
		d.keys(m, "ConfigMap", s.ConfigMap.Name, s.ConfigMap.Items, s.ConfigMap.Optional)
	case s.Secret != nil:
		d.keys(m, "Secret", s.Secret.Name, s.Secret.Items, s.Secret.Optional)
	case s.DownwardAPI != nil:
		d.downward(m, s.DownwardAPI.Items)
	case s.ServiceAccountToken != nil:
		m.from("a token of the service account")
		m.Secret = true
		m.Tokens[path.Clean(s.ServiceAccountToken.Path)] = *s.ServiceAccountToken
	default:
		d.leave("%s: a projected source that a process cannot have", m.Path)
	}
}

// electing are flags that turn leader election on. A process on this machine has no namespace for the lease.
var electing = []string{"leader-elect", "enable-leader-election", "leader-election"}

// WithoutElection returns the arguments without the flags that turn leader election on, and these flags.
func WithoutElection(arguments []string) (rest, left []string) {
	for _, a := range arguments {
		name, value, given := strings.Cut(strings.TrimLeft(a, "-"), "=")
		on, err := strconv.ParseBool(value)
		if strings.HasPrefix(a, "-") && slices.Contains(electing, name) && (!given || err == nil && on) {
			left = append(left, a)
		} else {
			rest = append(rest, a)
		}
	}
	return rest, left
}

// Mentioned returns the names of the files directly below a directory that the container's command, arguments and
// environment mention.
func Mentioned(c *corev1.Container, dir string) (names []string) {
	words := slices.Concat(c.Command, c.Args)
	for _, e := range c.Env {
		words = append(words, e.Value)
	}
	for _, word := range words {
		for rest := word; ; {
			_, below, ok := strings.Cut(rest, clean(dir)+"/")
			if !ok {
				break
			}
			rest = below
			if end := strings.IndexAny(below, after+"/"); end >= 0 {
				below = below[:end]
			}
			if below != "" && !slices.Contains(names, below) {
				names = append(names, below)
			}
		}
	}
	return names
}

// Certificate returns the content of a file of a serving certificate by its name, such as tls.crt, server-key.pem or ca;
// nil for another name.
func Certificate(name string, certificate, key, authority []byte) []byte {
	word := strings.ToLower(strings.TrimSuffix(name, path.Ext(name)))
	extension := strings.ToLower(path.Ext(name))
	switch {
	case strings.Contains(word, "key"), extension == ".key":
		return key
	case word == "ca", strings.HasPrefix(word, "ca-"), strings.HasPrefix(word, "ca_"), strings.HasPrefix(word, "cacert"), strings.HasSuffix(word, "-ca"):
		return authority
	case strings.Contains(word, "cert"), extension == ".crt", extension == ".pem", extension == ".cer":
		return certificate
	}
	return nil
}
