package command

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gatehouse-dev/gatehouse/internal/nearest"
)

// FlagError turns an error of the flag parser into a usage error, with the
// nearest flag for one that does not exist.
func FlagError(cmd *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	if allowed := notAllowed(nil); errors.As(err, &invalid) && errors.As(err, &allowed) {
		return OneOf(invalid.GetFlag().Name, invalid.GetValue(), allowed...)
	}
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return UsageError{Err: err}
	}
	// Users of kubectl bring these flags along.
	switch name := unknown.GetSpecifiedName(); {
	case (name == "f" || name == "filename") && strings.Contains(cmd.Use, "PATH"):
		return Usagef("files and directories are arguments here, without -f: %s PATH", cmd.CommandPath())
	case name == "kubeconfig" && cmd.Flags().Lookup("from-cluster") != nil:
		return Usagef("--from-cluster names the kubeconfig of the cluster to judge by: %s --from-cluster FILE", cmd.CommandPath())
	case unknown.GetSpecifiedShortnames() != "":
		return UsageError{Err: err}
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	name := unknown.GetSpecifiedName()
	suggestion := nearest.Suggestion("--", name, names)
	if note := UpstreamNote(name); note != "" && cmd.Name() == "serve" {
		return Usagef("unknown flag --%s%s; of kube-apiserver's flag: %s (docs/reference/flags-of-kube-apiserver.md)", name, suggestion, note)
	}
	return Usagef("unknown flag --%s%s", name, suggestion)
}
