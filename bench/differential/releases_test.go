package main

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestChangesHaveTheirEffect(t *testing.T) {
	status := func(code int, message string) answer {
		return answer{Code: code, ContentType: jsonType, Body: map[string]any{"kind": "Status", "message": message, "details": map[string]any{"causes": []any{message}}}}
	}
	object := func(value string, warnings ...string) answer {
		return answer{Code: 201, ContentType: jsonType, Warnings: warnings, Body: map[string]any{
			"kind": "Pod", "spec": map[string]any{"list": []any{map[string]any{"field": value}}},
		}}
	}
	for _, c := range []struct {
		name         string
		older, newer answer
		effect       effect
		text         string
	}{
		{"a rejection", object("a"), status(422, "no"), refused, "201 to 422 no"},
		{"no rejection any more", status(403, "no"), object("a"), accepted, "403 no to 201"},
		{"another code of a rejection", status(500, "no"), status(400, "not"), coded, "500 no to 400 not"},
		{"an object created before the requests", answer{}, status(422, "no"), refused, "201 to 422 no"},
		{"a new warning", object("a", "old"), object("a", "old", "new"), warned, "new: new"},
		{"a warning that is gone", object("a", "old"), object("a"), warned, "gone: old"},
		{"a field, without its index", object("a"), object("b"), field, "spec.list[].field: a to b"},
		{"a message, without its repetition in the details", status(422, "case-001"), status(422, "no"), worded, "case-N to no"},
	} {
		t.Run(c.name, func(t *testing.T) {
			differences := between(1, c.older, c.newer)
			for i := range differences {
				differences[i].Case, differences[i].Step = "case", "step"
			}
			want := []change{{c.effect, 1, "case: step", c.text}}
			if diff := cmp.Diff(want, changesOf(differences), cmp.AllowUnexported(change{})); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestResourcesOfPaths(t *testing.T) {
	for path, want := range map[string][]string{
		"/api/v1/namespaces/a/pods?dryRun=All":     {"v1 pods"},
		"/api/v1/namespaces/a/pods/b/resize":       {"v1 pods", "v1 pods/resize"},
		"/api/v1/namespaces/a":                     {"v1 namespaces"},
		"/api/v1/namespaces/a/status":              {"v1 namespaces", "v1 namespaces/status"},
		"/apis/storage.k8s.io/v1/storageclasses/a": {"storage.k8s.io/v1 storageclasses"},
		"/apis/apps/v1/namespaces/a/deployments":   {"apps/v1 deployments"},
		"/apis/apps/v1":                            nil,
		"/version":                                 nil,
	} {
		if got := resourcesOf(path); !slices.Equal(got, want) {
			t.Errorf("resources of %s: got %q, want %q", path, got, want)
		}
	}
}

func TestFollowUpsOfDifferencesAreLeftOut(t *testing.T) {
	r := &runner{
		pair: &pair{neighbours: []*session{{}, {}}}, lacking: map[lack]bool{},
		served: []map[string]bool{{"v1 pods": true}, {"v1 pods": true, "v1 news": true}},
	}
	note := func(name, step, path string, codes [2]int) bool {
		return r.leftOut(difference{Case: name, Step: step, Newer: 1, Codes: codes}, path)
	}
	const pods, news = "/api/v1/namespaces/a/pods", "/api/v1/namespaces/a/news"
	for _, c := range []struct {
		claim, name, step, path string
		codes                   [2]int
		out                     bool
	}{
		{"an object that one release refuses counts", "refused by one", "creating Pod a", pods, [2]int{422, 0}, false},
		{"requests after it do not", "refused by one", "POST", pods, [2]int{201, 403}, true},
		{"an object that both refuse, with other words, counts", "refused by both", "creating Pod a", pods, [2]int{422, 422}, false},
		{"and so do requests after it", "refused by both", "POST", pods, [2]int{201, 403}, false},
		{"a resource of one release only does not", "another", "POST", news, [2]int{404, 201}, true},
		{"the version of the build does not", "another", "GET", "/version", [2]int{200, 200}, true},
	} {
		if got := note(c.name, c.step, c.path, c.codes); got != c.out {
			t.Errorf("%s: left out: %t", c.claim, got)
		}
	}
}

func TestNewResourcesAreAwaitedOnAllReleases(t *testing.T) {
	requests := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests++; requests <= 4 {
			http.NotFound(w, nil)
			return
		}
		w.Header().Set("Content-Type", jsonType)
		_, _ = w.Write([]byte("{}"))
	}))
	defer s.Close()
	one := &session{host: s.URL, client: s.Client()}
	r := &runner{lab: &lab{neighbours: []neighbour{{}, {}}}, pair: &pair{neighbours: []*session{one, one}}, unsettled: map[string]bool{}}
	differences, err := r.step(t.Context(), step{method: http.MethodGet, path: "/apis/new.example.com/v1/things", async: true})
	if err != nil || len(differences) > 0 || requests != 6 {
		t.Errorf("%d requests, %v, %v", requests, differences, err)
	}
	// Decided answers are expected of Gatehouse, not of real servers.
	for program, want := range map[string]bool{"": true, "kube-apiserver": false} {
		r.lab.neighbours[0].program = program
		st := step{method: http.MethodPost, path: "/", expect: &expectation{code: 200}, decided: &expectation{code: 403}}
		if _, err := r.step(t.Context(), st); (err != nil) != want {
			t.Errorf("program %q: %v", program, err)
		}
	}
}
