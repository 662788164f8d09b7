package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/net/http2"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// patience is the timeout of one request.
const patience = 15 * time.Second

// answer is the answer of a server. Values that differ between any two servers are removed.
type answer struct {
	Code        int
	ContentType string
	Warnings    []string
	Body        any
	// Audit contains the annotations of the request's audit event, if they were requested.
	Audit map[string]any
	// Flow names the FlowSchema and the PriorityLevelConfiguration of the request, if API priority and fairness is
	// enabled.
	Flow []string
}

// session is the connection to one server.
type session struct {
	// name is the name of the server.
	name   string
	host   string
	client *http.Client
	// audit is the audit log of the server.
	audit *auditLog
	// config has the credentials of an administrator.
	config *rest.Config
	// adapt, if set, changes answers before they are compared.
	adapt func(*answer)
	// emulates reports whether the server emulates an older release, which does not have everything that cases use.
	emulates bool
	// flows maps the UIDs of FlowSchemas and PriorityLevelConfigurations to their names. It is nil if the flows of
	// requests are not compared.
	flows map[string]string
}

func newSession(name string, admin *rest.Config, audit *auditLog) (*session, error) {
	config := rest.CopyConfig(admin)
	config.UserAgent = "differential"
	config.Timeout = patience
	client, err := rest.HTTPClientFor(config)
	return &session{name: name, host: config.Host, client: client, audit: audit, config: admin}, err
}

// do sends a step. It returns an error only if there was no answer.
func (s *session) do(ctx context.Context, st step) (answer, error) {
	body := st.body
	if st.edit != nil {
		live := map[string]any{}
		if found, err := s.send(ctx, step{method: http.MethodGet, path: st.read}); err != nil {
			return answer{}, err
		} else if found.Code == http.StatusOK {
			live, _ = found.Body.(map[string]any)
		}
		body = st.edit(live)
	}
	st.body = body
	a, err := s.send(ctx, st)
	if err != nil {
		return answer{}, err
	}
	if s.adapt != nil {
		s.adapt(&a)
	}
	a.Body = normalize(a.Body)
	normalize(a.Audit)
	for i, w := range a.Warnings {
		a.Warnings[i] = normalizeText(w)
	}
	return a, nil
}

func (s *session) send(ctx context.Context, st step) (answer, error) {
	var body []byte
	switch b := st.body.(type) {
	case nil:
	case string:
		body = []byte(b)
	default:
		var err error
		if body, err = json.Marshal(b); err != nil {
			return answer{}, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, st.method, s.host+st.path, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if st.contentType != "" {
		req.Header.Set("Content-Type", st.contentType)
	} else if st.body != nil {
		req.Header.Set("Content-Type", jsonType)
	}
	req.Header.Set("Accept", jsonType)
	if st.accept != "" {
		req.Header.Set("Accept", st.accept)
	}
	if st.as != "" {
		req.Header.Set("Impersonate-User", st.as)
	}
	for _, group := range st.groups {
		req.Header.Add("Impersonate-Group", group)
	}
	id := ""
	if st.audited {
		id = uuid.NewString()
		req.Header.Set("Audit-ID", id)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return broken(fmt.Errorf("%s %s: %w", st.method, st.path, err))
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, fmt.Errorf("%s %s: %w", st.method, st.path, err)
	}
	a := answer{Code: resp.StatusCode, Warnings: resp.Header.Values("Warning")}
	if st.audited {
		slices.Sort(a.Warnings)
		if a.Audit, err = s.audit.annotations(ctx, id); err != nil {
			return answer{}, fmt.Errorf("%s %s: %w", st.method, st.path, err)
		}
	}
	if s.flows != nil {
		for _, header := range []string{"X-Kubernetes-PF-FlowSchema-UID", "X-Kubernetes-PF-PriorityLevel-UID"} {
			name, err := s.flow(ctx, resp.Header.Get(header))
			if err != nil {
				return answer{}, err
			}
			a.Flow = append(a.Flow, name)
		}
	}
	a.ContentType, _, _ = mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if a.ContentType == runtime.ContentTypeProtobuf {
		// The content is compared, not the bytes, which contain versions and times.
		obj, err := runtime.Decode(scheme.Codecs.UniversalDeserializer(), data)
		if err == nil {
			data, err = json.Marshal(obj)
		}
		if err != nil {
			return answer{}, fmt.Errorf("%s %s: %w", st.method, st.path, err)
		}
	}
	if (strings.HasSuffix(a.ContentType, "json") || a.ContentType == runtime.ContentTypeProtobuf) && json.Unmarshal(data, &a.Body) == nil {
		return a, nil
	}
	a.Body = string(data)
	return a, nil
}

// broken returns the answer that a failed request counts as, or the error. A kube-apiserver whose handler panics resets
// the stream with an internal error, like 1.36.3 on a JSONPatch with a list of objects as its value.
func broken(err error) (answer, error) {
	var reset http2.StreamError
	if errors.As(err, &reset) && reset.Code == http2.ErrCodeInternal {
		return answer{Code: http.StatusInternalServerError, Body: "no answer: the server reset the stream"}, nil
	}
	return answer{}, err
}

// flow returns the name of a FlowSchema or PriorityLevelConfiguration by its UID. The name is empty if the UID is
// empty or the object does not exist any more.
func (s *session) flow(ctx context.Context, uid string) (string, error) {
	if name, known := s.flows[uid]; known || uid == "" {
		return name, nil
	}
	for _, resource := range []string{"flowschemas", "prioritylevelconfigurations"} {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.host+"/apis/flowcontrol.apiserver.k8s.io/v1/"+resource, nil)
		if err != nil {
			return "", err
		}
		resp, err := s.client.Do(req)
		if err != nil {
			return "", err
		}
		var list struct {
			Items []struct{ Metadata struct{ Name, UID string } }
		}
		err = json.NewDecoder(resp.Body).Decode(&list)
		resp.Body.Close()
		if err != nil {
			return "", err
		}
		for _, item := range list.Items {
			s.flows[item.Metadata.UID] = item.Metadata.Name
		}
	}
	return s.flows[uid], nil
}
