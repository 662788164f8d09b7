package command

import (
	"fmt"

	"github.com/spf13/pflag"
	quantity "k8s.io/apimachinery/pkg/api/resource"
)

// byteCount is the value of a flag that is a size, written like one in Kubernetes:
// 128Mi or 1G. None at all is -1 in the variable, where 0 is for the default.
type byteCount struct{ bytes *int64 }

// NewByteCount returns the value of a flag that is a size in bytes, kept in a variable, with its default.
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
