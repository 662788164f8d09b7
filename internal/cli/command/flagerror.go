package command

import (
	"errors"

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
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return UsageError{Err: err}
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	name := unknown.GetSpecifiedName()
	return Usagef("unknown flag --%s%s", name, nearest.Suggestion("--", name, names))
}
