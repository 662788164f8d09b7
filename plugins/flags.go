package plugins

import (
	"github.com/spf13/pflag"

	"k8s.io/kubernetes/plugin/pkg/admission/defaulttolerationseconds"
)

// AddFlags adds kube-apiserver's flags for single plugins, which are older than its configuration file.
// Upstream stores their values per process.
func AddFlags(flags *pflag.FlagSet) { defaulttolerationseconds.RegisterFlags(flags) }
