package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strings"

	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"

	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

// inputs are valid and invalid values of the flags for versions.
var inputs = []string{
	"--emulated-version=", "--emulated-version=1.35", "--emulated-version=v1.35", "--emulated-version=kube=1.35",
	"--emulated-version=1.30", "--emulated-version=1.38", "--emulated-version=2.0", "--emulated-version=1.35.4", "--emulated-version=1",
	"--emulated-version=new", "--emulated-version=1.35 --emulated-version=1.36", "--emulated-version=wardle=1.2",
	"--emulated-version=1.35 --min-compatibility-version=1.36", "--emulated-version=1.35 --min-compatibility-version=1.30",
	"--min-compatibility-version=1.38", "--emulation-forward-compatible", "--runtime-config-emulation-forward-compatible",
	"--emulated-version=1.34 --runtime-config=storagemigration.k8s.io/v1=true", "--emulated-version=1.34 --feature-gates=NodeDeclaredFeatures=true",
	"--feature-gates=NoSuchGate=true", "--feature-gates=kube:JobManagedBy=false", "--feature-gates=wardle:NoSuchGate=true",
	"--feature-gates=MutatingAdmissionPolicy=perhaps",
}

// verdict is the reaction of a server to its flags.
type verdict struct {
	starts bool
	text   string
}

// judgeInputs writes the reactions of kube-apiserver and Gatehouse to the inputs. It returns an error if only one of
// them starts.
func judgeInputs(ctx context.Context, w io.Writer, b peer.Binaries, dir string) error {
	fmt.Fprint(w, "\n### Values of flags\n\nA program that does not start reports the error and ends, kube-apiserver with the exit code 1, and Gatehouse with 2.\n\n| flags | kube-apiserver 1.37.2 | gatehouse serve |\n|---|---|---|\n")
	var errs []error
	for i, input := range inputs {
		var found [2]verdict
		for k, kind := range []peer.Kind{peer.KubeAPIServer, peer.Gatehouse} {
			var err error
			if found[k], err = judgeInput(ctx, b, kind, filepath.Join(dir, fmt.Sprintf("%s-%d", kind, i)), strings.Fields(input)); err != nil {
				return fmt.Errorf("%s: %s: %w", kind, input, err)
			}
		}
		if found[0].starts != found[1].starts {
			errs = append(errs, fmt.Errorf("%s: kube-apiserver: %s; gatehouse: %s", input, found[0].text, found[1].text))
		}
		fmt.Fprintf(w, "| `%s` | %s | %s |\n", input, found[0].text, found[1].text)
	}
	return errors.Join(errs...)
}

var (
	refusals = map[peer.Kind]*regexp.Regexp{
		peer.KubeAPIServer: regexp.MustCompile(`(?m)"command failed" err="((?:[^"\\]|\\.)*)"$`),
		peer.Gatehouse:     regexp.MustCompile(`(?m)^gatehouse: (.*)$`),
	}
	exits = map[peer.Kind]string{peer.KubeAPIServer: "ended: exit status 1\n", peer.Gatehouse: "ended: exit status 2\n"}
)

// judgeInput starts a server with flags.
func judgeInput(ctx context.Context, b peer.Binaries, kind peer.Kind, dir string, flags []string) (v verdict, err error) {
	s, refused := peer.Start(ctx, b, kind, dir, flags...)
	if refused != nil {
		m := refusals[kind].FindStringSubmatch(refused.Error())
		if m == nil || !strings.Contains(refused.Error(), exits[kind]) {
			return v, refused
		}
		return verdict{text: "`" + strings.ReplaceAll(m[1], `\"`, `"`) + "`"}, nil
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	client, err := discovery.NewDiscoveryClientForConfig(s.Config)
	if err != nil {
		return v, err
	}
	var info *apiversion.Info
	if info, err = client.ServerVersion(); err != nil {
		return v, err
	}
	return verdict{true, "starts as " + info.EmulationMajor + "." + info.EmulationMinor}, nil
}
