package server

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
)

// BenchmarkRequestOfAnotherGroup is a GET of a namespace through all handlers of a server, with
// and without the handler that passes requests on to aggregated servers, in turns. ratio is the
// ratio of the medians:
//
//	go test ./internal/server -run '^$' -bench OfAnotherGroup -benchtime 20000x
func BenchmarkRequestOfAnotherGroup(b *testing.B) {
	s, err := New(Options{DataDir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	ended, ready := make(chan error, 1), make(chan Address, 1)
	go func() { ended <- s.Run(ctx, func(a Address) { ready <- a }) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	}()
	var address Address
	select {
	case address = <-ready:
	case err := <-ended:
		ended <- nil
		b.Fatal(err)
	}
	a := s.assembly.Load()
	mux := a.generic.Handler.NonGoRestfulMux
	var handler http.Handler
	mux.Unregister("/api/")
	mux.HandlePrefix("/api/", http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { handler.ServeHTTP(w, req) }))
	get := func(h http.Handler) time.Duration {
		handler = h
		req := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/api/v1/namespaces/default", nil)
		req.Header.Set("Authorization", "Bearer "+a.loopback.config.BearerToken)
		w := httptest.NewRecorder()
		begin := time.Now()
		a.generic.Handler.ServeHTTP(w, req)
		took := time.Since(begin)
		if w.Code != http.StatusOK {
			b.Fatalf("%d: %s", w.Code, w.Body)
		}
		return took
	}
	compare := func(b *testing.B) {
		var with, without []time.Duration
		for b.Loop() {
			// The second of two requests finds warm caches, so with and without take turns in
			// being second.
			if len(with)%2 == 0 {
				without = append(without, get(a.api.own))
				with = append(with, get(a.api.resources))
			} else {
				with = append(with, get(a.api.resources))
				without = append(without, get(a.api.own))
			}
		}
		slices.Sort(with)
		slices.Sort(without)
		middle, base := float64(with[len(with)/2]), float64(without[len(without)/2])
		b.ReportMetric(middle, "ns/with")
		b.ReportMetric(base, "ns/without")
		b.ReportMetric(middle/base, "ratio")
	}
	b.Run("remote=none", compare)

	client, err := clientset.NewForConfig(address.Admin)
	if err != nil {
		b.Fatal(err)
	}
	_, err = client.ApiregistrationV1().APIServices().Create(b.Context(), &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1.remote.example.com"},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: "remote.example.com", Version: "v1", GroupPriorityMinimum: 1, VersionPriority: 1, InsecureSkipTLSVerify: true,
			Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: "remote"},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); len(a.api.aggregator.Remote()) == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.Fatal("the APIService is not known")
		}
	}
	b.Run("remote=one", compare)
}
