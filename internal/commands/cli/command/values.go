package command

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	quantity "k8s.io/apimachinery/pkg/api/resource"
)

// choice is the value of a flag with a few allowed values.
type choice struct {
	value   *string
	allowed []string
}

// named returns the allowed values that a user can name. An optional flag also allows an empty value.
func (c *choice) named() []string {
	return slices.DeleteFunc(slices.Clone(c.allowed), func(value string) bool { return value == "" })
}

// Choose defines a flag with a few allowed values. The parser rejects others, and in a section the shell
// completes them.
func Choose(f *pflag.FlagSet, value *string, name, shorthand, usual, usage string, allowed ...string) {
	*value = usual
	f.VarP(&choice{value, allowed}, name, shorthand, usage)
}

// AddOutput adds the flag --output with the given formats. The first format is the default.
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

// notAllowed is the error of a flag with another value. It lists the allowed values.
type notAllowed []string

func (e notAllowed) Error() string { return "is not one of " + strings.Join(e, ", ") }

// OneOf validates a value that the flag parser has not checked: a default, or a value of a configuration file.
func OneOf(flag, value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return Usagef("--%s %q %w", flag, value, notAllowed(allowed))
}

// byteCount is the value of a flag with a size, written like a Kubernetes quantity: 128Mi or 1G. The variable
// is -1 for a size of 0, since 0 in the variable means the default.
type byteCount struct{ bytes *int64 }

// NewByteCount returns the value of a flag with a size in bytes. into receives the size, and value is the
// default.
func NewByteCount(into *int64, value int64) pflag.Value {
	*into = value
	return byteCount{into}
}

// Type implements pflag.Value.
func (b byteCount) Type() string { return "size" }

// String implements pflag.Value.
func (b byteCount) String() string {
	if b.bytes == nil || *b.bytes < 0 {
		return "0"
	}
	return quantity.NewQuantity(*b.bytes, quantity.BinarySI).String()
}

// Set implements pflag.Value.
func (b byteCount) Set(text string) error {
	q, err := quantity.ParseQuantity(text)
	if err != nil || q.Sign() < 0 {
		return fmt.Errorf("%q is not a size such as 128Mi or 1G", text)
	}
	if *b.bytes = q.Value(); *b.bytes == 0 {
		*b.bytes = -1
	}
	return nil
}
