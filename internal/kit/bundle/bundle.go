package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/internal/kit/credentials"
	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
)

const (
	// maxPart bounds a part, in bytes, and partTime the time of its request.
	maxPart  = 16 << 20
	partTime = 20 * time.Second
	// maxLog bounds the end of a log file that is included, in bytes.
	maxLog = 4 << 20
	// atOnce bounds the concurrent requests.
	atOnce = 4
)

// Options select the contents of a bundle.
type Options struct {
	// Server is the URL of the server, and Client has the credentials.
	Server string
	Client *http.Client
	// CPU is the duration of the CPU profile; 0 for none.
	CPU time.Duration
	// Logs are files whose ends are included.
	Logs []string
	// Version describes the program that writes the bundle.
	Version []byte
}

// Missing is a part that could not be read, and the reason.
type Missing struct {
	Name string
	Err  error
}

// Contents lists the parts of a bundle that were read from the server or from files, and the parts that could not
// be read.
type Contents struct {
	Read    []string
	Missing []Missing
}

// part is a file of the bundle.
type part struct {
	name string
	read func(context.Context) ([]byte, error)
	data []byte
	err  error
}

// Write writes a bundle, a gzip-compressed tar archive. The error is an error of out: unreadable parts are listed
// in the Contents.
func Write(ctx context.Context, out io.Writer, o Options) (Contents, error) {
	parts := o.parts()
	// A slow part must not delay the others.
	group := errgroup.Group{}
	group.SetLimit(atOnce)
	for _, p := range parts {
		group.Go(func() error {
			p.data, p.err = p.read(ctx)
			return nil
		})
	}
	_ = group.Wait()
	var c Contents
	compressed := gzip.NewWriter(out)
	archive := tar.NewWriter(compressed)
	now := time.Now()
	add := func(name string, data []byte) error {
		if err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(data)), ModTime: now}); err != nil {
			return err
		}
		_, err := archive.Write(data)
		return err
	}
	var index strings.Builder
	fmt.Fprintf(&index, "server: %s\ntime: %s\n\nparts:\n", o.Server, now.UTC().Format(time.RFC3339))
	for _, p := range parts {
		if p.err != nil {
			c.Missing = append(c.Missing, Missing{p.name, p.err})
			continue
		}
		c.Read = append(c.Read, p.name)
		fmt.Fprintf(&index, "  %s (%d bytes)\n", p.name, len(p.data))
		if err := add(p.name, p.data); err != nil {
			return c, err
		}
	}
	if len(c.Missing) > 0 {
		c.Missing = together(c.Missing)
		index.WriteString("\nleft out:\n")
		for _, m := range c.Missing {
			fmt.Fprintf(&index, "  %s: %s\n", m.Name, m.Err)
		}
	}
	for _, own := range []struct {
		name string
		data []byte
	}{{"client-version.yaml", o.Version}, {"bundle.txt", []byte(index.String())}} {
		if err := add(own.name, own.data); err != nil {
			return c, err
		}
	}
	return c, errors.Join(archive.Close(), compressed.Close())
}

// together merges parts that are missing for the same reason.
func together(list []Missing) []Missing {
	var out []Missing
	place := map[string]int{}
	for _, m := range list {
		if i, ok := place[m.Err.Error()]; ok {
			out[i].Name += ", " + m.Name
			continue
		}
		place[m.Err.Error()] = len(out)
		out = append(out, m)
	}
	return out
}

// pages are the requested pages of the server, with the function that redacts each. Texts lose everything that
// looks like a credential. Profiles need no redaction: they have addresses in the program and counts, and no
// contents of memory. The lists have objects without secrets: the registrations, their states on each server, and
// their order.
var pages = []struct {
	name, path string
	change     func([]byte) ([]byte, error)
}{
	{"log.txt", "/debug/log", withoutCredentials},
	{"version.json", "/version", withoutCredentials},
	{"livez.txt", "/livez?verbose", withoutCredentials},
	{"readyz.txt", "/readyz?verbose", withoutCredentials},
	{"statusz.txt", "/statusz", withoutCredentials},
	{"flagz.txt", "/flagz", withoutCredentials},
	{"metrics.txt", "/metrics", withoutCredentials},
	{"fairness/levels.txt", "/debug/api_priority_and_fairness/dump_priority_levels", withoutCredentials},
	{"fairness/queues.txt", "/debug/api_priority_and_fairness/dump_queues", withoutCredentials},
	{"profiles/goroutines.txt", "/debug/pprof/goroutine?debug=2", withoutCredentials},
	{"profiles/heap.pb.gz", "/debug/pprof/heap", nil},
	{"profiles/allocs.pb.gz", "/debug/pprof/allocs", nil},
	{"profiles/goroutine.pb.gz", "/debug/pprof/goroutine", nil},
	{"profiles/mutex.pb.gz", "/debug/pprof/mutex", nil},
	{"profiles/block.pb.gz", "/debug/pprof/block", nil},
	{"registrations/mutatingwebhookconfigurations.yaml", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", objects},
	{"registrations/validatingwebhookconfigurations.yaml", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", objects},
	{"registrations/validatingadmissionpolicies.yaml", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", objects},
	{"registrations/validatingadmissionpolicybindings.yaml", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings", objects},
	{"registrations/mutatingadmissionpolicies.yaml", "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies", objects},
	{"registrations/mutatingadmissionpolicybindings.yaml", "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings", objects},
	{"registrations/initializerconfigurations.yaml", "/apis/admissionregistration.k8s.io/v1alpha1/initializerconfigurations", objects},
	{"registrations/externaladmissionhookconfigurations.yaml", "/apis/admissionregistration.k8s.io/v1alpha1/externaladmissionhookconfigurations", objects},
	{"registrations/apiservices.yaml", "/apis/apiregistration.k8s.io/v1/apiservices", objects},
	{"states/registrationstates.yaml", "/apis/gatehouse.dev/v1alpha1/registrationstates", objects},
	{"states/admissionservers.yaml", "/apis/gatehouse.dev/v1alpha1/admissionservers", objects},
	{"fairness/flowschemas.yaml", "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", objects},
	{"fairness/prioritylevelconfigurations.yaml", "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations", objects},
	{"traces.yaml", tracesPath, traces},
}

// tracesPath has the traces of the latest requests.
const tracesPath = "/apis/gatehouse.dev/v1alpha1/admissiontraces"

// parts returns the parts to collect, the slowest first.
func (o *Options) parts() []*part {
	var list []*part
	get := func(name, path string, time time.Duration, change func([]byte) ([]byte, error)) {
		list = append(list, &part{name: name, read: func(ctx context.Context) ([]byte, error) {
			data, err := o.get(ctx, path, time)
			if err != nil || change == nil {
				return data, err
			}
			return change(data)
		}})
	}
	if o.CPU > 0 {
		get("profiles/cpu.pb.gz", fmt.Sprintf("/debug/pprof/profile?seconds=%d", max(1, int(o.CPU.Seconds()))), o.CPU+partTime, nil)
	}
	for _, p := range pages {
		get(p.name, p.path, partTime, p.change)
	}
	for i, file := range o.Logs {
		list = append(list, &part{name: fmt.Sprintf("logs/%d-%s", i+1, filepath.Base(file)), read: func(context.Context) ([]byte, error) {
			data, err := tail(file)
			if err != nil {
				return nil, err
			}
			return withoutCredentials(data)
		}})
	}
	return list
}

// get reads a page of the server.
func (o *Options) get(ctx context.Context, path string, time time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, time)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(o.Server, "/")+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json, */*")
	if strings.HasSuffix(path, "z") {
		// The default format of these pages is for people, and has no version.
		req.Header.Set("Accept", "text/plain")
	}
	answer, err := o.Client.Do(req)
	if err != nil {
		var of *url.Error
		if errors.As(err, &of) {
			// The address is the same for all parts, so the error omits it.
			err = of.Err
		}
		return nil, err
	}
	defer answer.Body.Close()
	data, err := files.ReadFrom(answer.Body, maxPart)
	if err != nil {
		return nil, err
	}
	// A failed health check lists the failed parts.
	if answer.StatusCode == http.StatusOK || strings.HasSuffix(path, "z?verbose") && answer.StatusCode == http.StatusInternalServerError {
		return data, nil
	}
	status := metav1.Status{}
	if json.Unmarshal(data, &status) == nil && status.Message != "" {
		return nil, errors.New(status.Message)
	}
	return nil, errors.New(strings.ToLower(answer.Status))
}

// tail returns the end of a file, from the beginning of a line.
func tail(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	skip := max(0, info.Size()-maxLog)
	if _, err := f.Seek(skip, io.SeekStart); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxLog))
	if err == nil && skip > 0 {
		_, data, _ = bytes.Cut(data, []byte("\n"))
	}
	return data, err
}

// objects returns a list as YAML, without fields for tools.
func objects(data []byte) ([]byte, error) {
	return changed(data, func(item map[string]any) {
		metadata, _ := item["metadata"].(map[string]any)
		delete(metadata, "managedFields")
		if annotations, ok := metadata["annotations"].(map[string]any); ok {
			delete(annotations, credentials.LastApplied)
		}
	})
}

// traces returns traces as YAML, without data of the objects: values of patches, and webhooks' warnings and audit
// annotations.
func traces(data []byte) ([]byte, error) {
	return changed(data, func(item map[string]any) { drop(item, "value", "was", "warnings", "auditAnnotations") })
}

// changed returns a list as YAML after change was applied to each item, and without credentials.
func changed(data []byte, change func(item map[string]any)) ([]byte, error) {
	var list struct {
		Items []map[string]any `json:"items"`
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("the answer is not a list: %w", err)
	}
	for _, item := range list.Items {
		change(item)
		credentials.Shown.Object(schema.GroupResource{}, "", item)
	}
	return yaml.Marshal(list)
}

// withoutCredentials redacts everything in a text that looks like a credential.
func withoutCredentials(text []byte) ([]byte, error) {
	return []byte(credentials.Text(string(text))), nil
}

// drop removes fields from a value, at any depth.
func drop(v any, fields ...string) {
	switch v := v.(type) {
	case map[string]any:
		for _, f := range fields {
			delete(v, f)
		}
		for _, e := range v {
			drop(e, fields...)
		}
	case []any:
		for _, e := range v {
			drop(e, fields...)
		}
	}
}
