// Release builds the files of a release of Gatehouse. It needs Go and git, and neither root
// nor a daemon:
//
//	go run . -out DIR
//
// For each platform and each of the two programs, gatehouse and gatehouse-agent, it builds an
// archive with the program and a list of its modules (CycloneDX), and for gatehouse an archive
// for setup-envtest. For all platforms together it builds the index of setup-envtest, a
// container image of each program as an archive of an OCI layout, a manifest for krew, and
// checksums. The version is read from the program: Go sets it from the tag or the
// commit. The same commit and the same Go give the same files, byte for byte.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// options are the flags.
type options struct {
	module    string
	out       string
	platforms []platform
	url       string
	modified  bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := parse(os.Args[1:])
	if err == nil {
		err = o.run(ctx, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func parse(args []string) (*options, error) {
	o := &options{}
	flags := flag.NewFlagSet("release", flag.ExitOnError)
	flags.StringVar(&o.module, "module", "../..", "`directory` of the module to build")
	flags.StringVar(&o.out, "out", "../../dist", "`directory` for the files; files of another release in it stay")
	flags.StringVar(&o.url, "url", "", "`URL` of the directory that will have the files (default: the release on the host of the module)")
	flags.BoolVar(&o.modified, "modified", false, "build a work tree with changes, which cannot be reproduced")
	platforms := flags.String("platforms", "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64", "`list` of platforms")
	_ = flags.Parse(args)
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	for _, text := range strings.Split(*platforms, ",") {
		p, err := parsePlatform(text)
		if err != nil {
			return nil, fmt.Errorf("-platforms: %w", err)
		}
		o.platforms = append(o.platforms, p)
	}
	return o, nil
}

// run builds the release.
func (o *options) run(ctx context.Context, progress io.Writer) error {
	if err := o.checkTree(ctx); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "gatehouse-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	r := &release{dir: o.out, url: o.url}
	for _, p := range o.platforms {
		for _, name := range []string{gatehouse, agent} {
			fmt.Fprintf(progress, "building %s for %s\n", name, p)
			b, err := o.build(ctx, filepath.Join(work, p.OS+"-"+p.Arch), name, p)
			if err != nil {
				return fmt.Errorf("%s for %s: %w", name, p, err)
			}
			if b.modified && !o.modified {
				return errModified
			}
			if name == gatehouse {
				r.programs = append(r.programs, b)
			} else {
				r.agents = append(r.agents, b)
			}
			if b.version != r.version() {
				return fmt.Errorf("%s for %s is version %s, and %s is %s: did the work tree change meanwhile?", name, p, b.version, r.programs[0].platform, r.version())
			}
		}
	}
	if r.url == "" {
		r.url = "https://" + r.programs[0].info.Main.Path + "/releases/download/" + r.version()
	}
	if r.license, err = os.ReadFile(filepath.Join(o.module, "LICENSE")); err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	for _, write := range []func() error{r.writeArchives, r.writeBOMs, r.writeEnvtest, r.writeImages, r.writeKrew, r.writeChecksums} {
		if err := write(); err != nil {
			return err
		}
	}
	for _, f := range r.files {
		fmt.Fprintf(progress, "%7.1f MB  %s\n", float64(f.size)/1e6, f.name)
	}
	return nil
}

// release is a release in progress, made from the programs.
type release struct {
	// programs has gatehouse for each platform, and agents has gatehouse-agent.
	programs, agents []*program
	// dir is the output directory, and url the URL of the published files.
	dir, url string
	license  []byte
	// files are the written files, in order.
	files []file
}

func (r *release) version() string { return r.programs[0].version }

// allPrograms returns the programs of both names.
func (r *release) allPrograms() []*program { return slices.Concat(r.programs, r.agents) }

// link is the URL of a file of the release.
func (r *release) link(name string) string { return strings.TrimSuffix(r.url, "/") + "/" + name }
