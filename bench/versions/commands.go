package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/gatehouse-dev/gatehouse/bench/internal/fieldrequests"
)

// commands evaluate the objects of requests with commands of Gatehouse that emulate a release.
type commands struct {
	w                       io.Writer
	gatehouse, release, dir string
	requests                []fieldrequests.Request
	// real are the answers of a real server of the release.
	real []answered
}

// compare writes the verdicts of a command that differ from the real server, and returns their number.
func (c *commands) compare(name string, found map[int]answered) int {
	passes, failures := 0, 0
	for _, i := range slices.Sorted(maps.Keys(found)) {
		kind := ""
		switch real, ours := c.real[i].code >= 400, found[i].code >= 400; {
		case real && !ours:
			kind = "FALSE PASS"
			passes++
		case !real && ours:
			kind = "FALSE FAILURE"
			failures++
		default:
			continue
		}
		fmt.Fprintf(c.w, "%s of %s: %s\n    real %s: %d %s\n    %s: %s\n", kind, name, c.requests[i].Title, c.release, c.real[i].code, c.real[i].text, name, found[i].text)
	}
	fmt.Fprintf(c.w, "%s: %s judged %d of %d objects; %d false passes, %d false failures\n", c.release, name, len(found), len(c.requests), passes, failures)
	return passes + failures
}

// fileOf returns the file name of a request, and numberOf the number of the request of a file.
func fileOf(i int) string { return fmt.Sprintf("%05d.json", i) }

func numberOf(file string) (i int, err error) {
	_, err = fmt.Sscanf(filepath.Base(file), "%05d.json", &i)
	return i, err
}

// write writes a file for each request into a new directory.
func (c *commands) write(name string, content func(i int) any) (string, error) {
	dir := filepath.Join(c.dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	for i := range c.requests {
		data, err := json.Marshal(content(i))
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(dir, fileOf(i)), data, 0o644); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// run runs a command that reports in JSON. Findings of the command are not an error.
func (c *commands) run(ctx context.Context, into any, args ...string) error {
	cmd := exec.CommandContext(ctx, c.gatehouse, args...)
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if failed := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &failed) || len(out) == 0) {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(problems.Bytes()))
	}
	return json.Unmarshal(out, into)
}

// judged is the answer of a command.
func judged(rejected bool, text string) answered {
	if rejected {
		return answered{400, text}
	}
	return answered{200, text}
}

func (c *commands) check(ctx context.Context, _ *rest.Config) (map[int]answered, error) {
	dir, err := c.write("check", func(i int) any { return c.requests[i].Object })
	if err != nil {
		return nil, err
	}
	var report struct {
		Objects []struct{ File, Verdict, Message string }
	}
	if err := c.run(ctx, &report, "check", dir, "-o", "json", "--expand=false", "--kubernetes-version", c.release); err != nil {
		return nil, err
	}
	found := map[int]answered{}
	for _, o := range report.Objects {
		i, err := numberOf(o.File)
		if err != nil {
			return nil, err
		}
		found[i] = judged(o.Verdict == "rejected", o.Message)
	}
	return found, nil
}

// test writes a separate test for each request and runs gatehouse test. A test without a result counts as a
// rejection, with the reason as text.
func (c *commands) test(ctx context.Context, _ *rest.Config) (map[int]answered, error) {
	dir, err := c.write("test", func(i int) any {
		return map[string]any{"apiVersion": "gatehouse.dev/v1alpha1", "kind": "AdmissionTests", "tests": []any{map[string]any{
			"name": fmt.Sprint(i), "request": map[string]any{"object": c.requests[i].Object}, "expect": map[string]any{"allowed": true},
		}}}
	})
	if err != nil {
		return nil, err
	}
	var report struct {
		Tests []struct {
			File, Message string
			Outcome       *struct {
				Allowed bool
				Message string
			}
		}
		WrongFiles []struct{ File, Message string }
	}
	if err := c.run(ctx, &report, "test", dir, "-o", "json", "--kubernetes-version", c.release); err != nil {
		return nil, err
	}
	found := map[int]answered{}
	for _, wrong := range report.WrongFiles {
		i, err := numberOf(wrong.File)
		if err != nil {
			return nil, err
		}
		found[i] = judged(true, wrong.Message)
	}
	for _, t := range report.Tests {
		i, err := numberOf(t.File)
		if err != nil {
			return nil, err
		}
		found[i] = judged(true, t.Message)
		if t.Outcome != nil {
			found[i] = judged(!t.Outcome.Allowed, t.Outcome.Message)
		}
	}
	return found, nil
}

// many is the number of objects that one run explains.
const many = 100

// explain explains the requests with the real server. A request that cannot be explained counts as a rejection, with
// the reason as text.
func (c *commands) explain(ctx context.Context, real *rest.Config) (map[int]answered, error) {
	dir, err := c.write("explain", func(i int) any { return c.requests[i].Object })
	if err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(c.dir, "kubeconfig")
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: real.Host, CertificateAuthorityData: real.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {Token: real.BearerToken}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, kubeconfig); err != nil {
		return nil, err
	}
	found := map[int]answered{}
	for from := 0; from < len(c.requests); from += many {
		if err := c.explainSome(ctx, dir, kubeconfig, from, min(from+many, len(c.requests)), found); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// explainSome explains a range of the requests. A request that cannot be explained ends the command, so explainSome
// halves the range until it contains only this request.
func (c *commands) explainSome(ctx context.Context, dir, kubeconfig string, from, to int, found map[int]answered) error {
	some := filepath.Join(c.dir, fmt.Sprintf("explain-%d-%d", from, to))
	if err := os.MkdirAll(some, 0o755); err != nil {
		return err
	}
	for i := from; i < to; i++ {
		if err := os.Link(filepath.Join(dir, fileOf(i)), filepath.Join(some, fileOf(i))); err != nil {
			return err
		}
	}
	type explanation struct {
		Status struct {
			Plan *struct{ Rejection, Likely string }
		}
	}
	var list struct {
		explanation
		Items []explanation
	}
	err := c.run(ctx, &list, "explain", "-f", some, "-o", "json", "--expand=false", "--kubeconfig", kubeconfig)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if to-from > 1 && (err != nil || len(list.Items) != to-from) {
		middle := (from + to) / 2
		if err := c.explainSome(ctx, dir, kubeconfig, from, middle, found); err != nil {
			return err
		}
		return c.explainSome(ctx, dir, kubeconfig, middle, to, found)
	}
	if err != nil {
		found[from] = judged(true, err.Error())
		return nil
	}
	if len(list.Items) == 0 {
		list.Items = []explanation{list.explanation}
	}
	for i, e := range list.Items {
		if p := e.Status.Plan; p != nil {
			found[from+i] = judged(p.Rejection+p.Likely != "", p.Rejection+p.Likely)
		}
	}
	return nil
}
