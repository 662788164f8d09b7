package main

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/url"
	"os"
	"runtime/debug"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"
)

// writeBOMs writes a list of the modules in each program.
func (r *release) writeBOMs() error {
	for _, b := range r.allPrograms() {
		list, err := b.bom()
		if err != nil {
			return err
		}
		_, err = r.create(fmt.Sprintf("%s_%s_%s_%s.cdx.json", b.name, b.version, b.OS, b.Arch), func(w io.Writer) error {
			// The newest version of the format that common scanners read.
			return cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(list, cdx.SpecVersion1_6)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// bom lists the modules that the toolchain recorded in the program.
func (b *program) bom() (*cdx.BOM, error) {
	sum, err := sumFile(b.path)
	if err != nil {
		return nil, err
	}
	main := component(&b.info.Main, cdx.ComponentTypeApplication)
	main.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: sum}}
	main.Licenses = &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}}
	main.Properties = &[]cdx.Property{
		{Name: "gatehouse:platform", Value: b.String()},
		{Name: "gatehouse:commit", Value: b.commit},
	}
	std := component(&debug.Module{Path: "std", Version: strings.TrimPrefix(b.info.GoVersion, "go")}, cdx.ComponentTypeLibrary)
	components := []cdx.Component{std}
	all := []string{std.BOMRef}
	for _, m := range b.info.Deps {
		c := component(m, cdx.ComponentTypeLibrary)
		components = append(components, c)
		all = append(all, c.BOMRef)
	}
	list := cdx.NewBOM()
	// The same program has the same list.
	list.SerialNumber = uuid.NewSHA1(uuid.NameSpaceOID, []byte(sum)).URN()
	list.Metadata = &cdx.Metadata{Timestamp: b.made.Format(time.RFC3339), Component: &main}
	list.Components = &components
	list.Dependencies = &[]cdx.Dependency{{Ref: main.BOMRef, Dependencies: &all}}
	return list, nil
}

// component describes a module.
func component(m *debug.Module, kind cdx.ComponentType) cdx.Component {
	// A module from a directory has no version of its own.
	if m.Replace != nil && m.Replace.Version != "" && m.Replace.Version != "(devel)" {
		m = m.Replace
	}
	link := "pkg:golang/" + strings.ReplaceAll(url.PathEscape(m.Path), "%2F", "/") + "@" + url.PathEscape(m.Version)
	c := cdx.Component{BOMRef: link, Type: kind, Name: m.Path, Version: m.Version, PackageURL: link}
	// A sum of the form h1 is a SHA-256 over the files of the module.
	if encoded, ok := strings.CutPrefix(m.Sum, "h1:"); ok {
		if sum, err := base64.StdEncoding.DecodeString(encoded); err == nil {
			c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum)}}
		}
	}
	return c
}

// sumFile returns the SHA-256 of a file.
func sumFile(path string) (string, error) {
	in, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer in.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, in); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
