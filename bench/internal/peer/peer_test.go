package peer

import (
	"context"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// A kept kube-apiserver of an earlier patch release is not compared in the place of the required one.
func TestOldProgramsAreNotKept(t *testing.T) {
	for _, module := range []string{"../..", "../../conformance"} {
		if version, err := required(module, kubernetesModule); err != nil || version != own().Version {
			t.Errorf("go.mod of %s requires %s (%v), Releases ends with %s", module, version, err, own().Version)
		}
	}
	const line = "path\tcommand-line-arguments\ndep\t" + kubernetesModule + "\tv1.37.1\th1:a=\n"
	info, err := debug.ParseBuildInfo(line)
	if err != nil {
		t.Fatal(err)
	}
	if !has(info, kubernetesModule, "v1.37.1") || has(info, kubernetesModule, "v1.37.2") || has(info, etcdModule, "v1.37.1") {
		t.Errorf("the versions in %q are not compared", line)
	}
	program := &debug.BuildInfo{Main: debug.Module{Path: kubernetesModule, Version: "v1.37.1"}}
	if !has(program, kubernetesModule, "v1.37.1") || has(program, kubernetesModule, "v1.37.2") {
		t.Error("the version of a main module is not compared")
	}
	if keep, err := contains(filepath.Join(t.TempDir(), "missing"), kubernetesModule, own().Version); keep || err != nil {
		t.Errorf("a missing program: %t, %v", keep, err)
	}
}

// The test starts real servers and needs their programs: it runs only if BENCH_BINARIES names a directory to build
// them in.
func TestServersStartTwiceOnTheSameData(t *testing.T) {
	dir := os.Getenv("BENCH_BINARIES")
	if dir == "" {
		t.Skip("BENCH_BINARIES is not set: building kube-apiserver takes minutes")
	}
	b, err := Build(t.Context(), "../..", dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []Kind{KubeAPIServer, Gatehouse, GatehouseEmbedded} {
		t.Run(string(kind), func(t *testing.T) {
			data := t.TempDir()
			for range 2 {
				func() {
					s, err := Start(context.Background(), b, kind, data)
					if err != nil {
						t.Fatal(err)
					}
					defer func() {
						if err := s.Stop(); err != nil {
							t.Error(err)
						}
					}()
					client, err := kubernetes.NewForConfig(s.Config)
					if err != nil {
						t.Fatal(err)
					}
					if _, err := client.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
						t.Error(err)
					}
					server, etcd, err := s.RSS()
					if err != nil {
						t.Error(err)
					}
					t.Logf("ready in %s, %d MiB + %d MiB", s.Ready, server>>20, etcd>>20)
				}()
			}
		})
	}
}
