package command

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// choice is the value of a flag that has one of a few values.
type choice struct {
	value   *string
	allowed []string
}

// named are the values that a user can name: an option that may be left out allows an empty one, too.
func (c *choice) named() []string {
	return slices.DeleteFunc(slices.Clone(c.allowed), func(value string) bool { return value == "" })
}

// Choose defines a flag that has one of a few values. The parser rejects others, and the shell
// completes those of a section.
func Choose(f *pflag.FlagSet, value *string, name, shorthand, usual, usage string, allowed ...string) {
	*value = usual
	f.VarP(&choice{value, allowed}, name, shorthand, usage)
}

// AddOutput adds the flag --output to a command that prints in some formats, the first of them unless told otherwise.
func AddOutput(cmd *cobra.Command, value *string, usage string, formats ...string) {
	AddSection(cmd, "Output", func(f *pflag.FlagSet) { Choose(f, value, "output", "o", formats[0], usage, formats...) })
}

// String implements pflag.Value.
func (c *choice) String() string { return *c.value }

// Type implements pflag.Value.
func (c *choice) Type() string { return "string" }

// Set implements pflag.Value.
func (c *choice) Set(value string) error {
	if !slices.Contains(c.allowed, value) {
		return notAllowed(c.named())
	}
	*c.value = value
	return nil
}

// notAllowed are the values of a flag that was given another one.
type notAllowed []string

func (e notAllowed) Error() string { return "is not one of " + strings.Join(e, ", ") }

// OneOf checks a value that did not come through the parser: what an option is when it is not
// chosen, or one of a configuration file.
func OneOf(flag, value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return Usagef("--%s %q %w", flag, value, notAllowed(allowed))
}
