package command

import (
	"github.com/spf13/pflag"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/crdschema"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/kit/emulation"
)

// Definitions is the flag for the places of CRDs and JSON schemas that are in no file of the project. The configuration
// file cannot set it: whoever writes that file would choose the servers that a command connects to.
type Definitions struct{ locations []string }

// AddFlag adds the flag.
func (d *Definitions) AddFlag(f *pflag.FlagSet) {
	f.StringArrayVar(&d.locations, "schema-location", nil, "`place` of CRDs that are in no file: a folder or an archive (.zip, .tar, .tgz) of CRDs, a folder or a URL of JSON schemas with the template variables of kubeconform, or default; may be repeated")
}

// Open reads the CRDs of the locations; nil if there are no locations.
func (d *Definitions) Open() (*crdschema.Locations, error) {
	if len(d.locations) == 0 {
		return nil, nil
	}
	l, err := crdschema.Open(d.locations, emulation.Release)
	if err != nil {
		return nil, Usagef("--schema-location: %w", err)
	}
	l.Accepts = offline.Accepts
	return l, nil
}
