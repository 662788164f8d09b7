package controllers

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
)

// answers is a server that gives every request the same response.
type answers struct {
	code int
	body string
	got  *http.Request
}

func (a *answers) RoundTrip(req *http.Request) (*http.Response, error) {
	a.got = req
	return &http.Response{StatusCode: a.code, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(a.body)), Request: req}, nil
}

// Only a response that names the object means that the object does not exist.
func TestAnAbsentObjectIsNamed(t *testing.T) {
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound,
		Code: http.StatusNotFound, Details: &metav1.StatusDetails{Name: "w", Kind: "widgets"},
	}
	codec := scheme.Codecs.SupportedMediaTypes()
	encoded := func(mediaType string) string {
		for _, info := range codec {
			if info.MediaType == mediaType {
				var b strings.Builder
				if err := info.Serializer.Encode(&status, &b); err != nil {
					t.Fatal(err)
				}
				return b.String()
			}
		}
		t.Fatalf("no codec for %s", mediaType)
		return ""
	}
	for _, tc := range []struct {
		name string
		code int
		body string
		want int
	}{
		{"the object, as JSON", 404, encoded("application/json"), 404},
		{"the object, as protobuf", 404, encoded("application/vnd.kubernetes.protobuf"), 404},
		{"another object", 404, strings.Replace(encoded("application/json"), `"w"`, `"v"`, 1), 503},
		{"a resource that is not served", 404, `{"kind":"Status","apiVersion":"v1","reason":"NotFound","details":{"kind":"widgets"},"code":404}`, 503},
		{"a status without details", 404, `{"kind":"Status","apiVersion":"v1","reason":"NotFound","code":404}`, 503},
		{"a page", 404, "404 page not found\n", 503},
		{"nothing", 404, "", 503},
		{"another answer", 409, "", 409},
	} {
		t.Run(tc.name, func(t *testing.T) {
			req, err := http.NewRequest(http.MethodGet, "https://server/apis/example.com/v1/namespaces/n/widgets/w", nil)
			if err != nil {
				t.Fatal(err)
			}
			res, err := certain{&answers{code: tc.code, body: tc.body}}.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(res.Body)
			if err != nil || res.StatusCode != tc.want {
				t.Fatalf("got %d, %v, want %d", res.StatusCode, err, tc.want)
			}
			if tc.want == tc.code && string(body) != tc.body {
				t.Errorf("the body is now %q", body)
			}
		})
	}
}

// S11.36: reads include objects that are not initialized.
func TestReadsIncludeWhatIsNotInitialized(t *testing.T) {
	for method, want := range map[string]string{http.MethodGet: "includeUninitialized=true&watch=true", http.MethodDelete: "watch=true"} {
		server := &answers{code: 200}
		req, err := http.NewRequest(method, "https://server/api/v1/pods?watch=true", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := (everything{server}).RoundTrip(req); err != nil {
			t.Fatal(err)
		}
		if got := server.got.URL.RawQuery; got != want {
			t.Errorf("%s: %s, want %s", method, got, want)
		}
		if req.URL.RawQuery != "watch=true" {
			t.Errorf("%s: the request of the caller was changed", method)
		}
	}
}

// listed is a discovery client with the results that a test sets.
type listed struct {
	discovery.ServerResourcesInterface
	lists []*metav1.APIResourceList
	err   error
}

func (l *listed) ServerPreferredResources() ([]*metav1.APIResourceList, error) { return l.lists, l.err }

// Kinds of servers that do not answer are still followed; kinds of groups that are gone are not.
func TestKindsOfServersThatDoNotAnswerAreRemembered(t *testing.T) {
	list := func(gv string) *metav1.APIResourceList { return &metav1.APIResourceList{GroupVersion: gv} }
	failed := func(group string) error {
		return &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{{Group: group, Version: "v1"}: errors.New("503")}}
	}
	server := &listed{}
	s := &steady{ServerResourcesInterface: server}
	down := errors.New("down")
	for i, step := range []struct {
		served []string
		err    error
		want   []string
	}{
		{[]string{"v1"}, failed("a"), []string{"v1"}},
		{[]string{"v1", "a/v1", "b/v1"}, nil, []string{"v1", "a/v1", "b/v1"}},
		{[]string{"v1", "b/v1"}, failed("a"), []string{"v1", "b/v1", "a/v1"}},
		{[]string{"v1", "b/v1"}, failed("a"), []string{"v1", "b/v1", "a/v1"}},
		{nil, down, nil},
		{[]string{"v1", "a/v1"}, failed("b"), []string{"v1", "a/v1", "b/v1"}},
		{[]string{"v1", "b/v1"}, nil, []string{"v1", "b/v1"}},
		{[]string{"v1", "b/v1"}, failed("a"), []string{"v1", "b/v1"}},
	} {
		server.lists, server.err = nil, step.err
		for _, gv := range step.served {
			server.lists = append(server.lists, list(gv))
		}
		lists, err := s.ServerPreferredResources()
		var got []string
		for _, l := range lists {
			got = append(got, l.GroupVersion)
		}
		if !slices.Equal(got, step.want) || !errors.Is(err, step.err) {
			t.Errorf("step %d: %v, %v, want %v", i, got, err, step.want)
		}
	}
}
