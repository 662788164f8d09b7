package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gatehouse-dev/gatehouse/internal/lint"
)

// completes has the shell complete the value of a flag. Values before a comma stay.
func completes(cmd *cobra.Command, flag string, values func() []string) {
	err := cmd.RegisterFlagCompletionFunc(flag, func(_ *cobra.Command, _ []string, given string) ([]string, cobra.ShellCompDirective) {
		before := given[:strings.LastIndex(given, ",")+1]
		var list []string
		for _, v := range values() {
			if strings.HasPrefix(before+v, given) {
				list = append(list, before+v)
			}
		}
		return list, cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err)
	}
}

// values are those of a flag that has a fixed set of them.
func values(list ...string) func() []string { return func() []string { return list } }

// ruleNames are the rules of lint.
func ruleNames() []string {
	var names []string
	for _, r := range lint.Rules() {
		names = append(names, r.ID)
	}
	return names
}

// contextNames are the contexts of the kubeconfig that a command would use.
func contextNames(kubeconfig *string) func() []string {
	return func() []string {
		rules := clientcmd.NewDefaultClientConfigLoadingRules()
		rules.ExplicitPath = *kubeconfig
		if readable(*kubeconfig, "") != nil {
			return nil
		}
		config, err := rules.Load()
		if err != nil {
			return nil
		}
		var names []string
		for name := range config.Contexts {
			names = append(names, name)
		}
		slices.Sort(names)
		return names
	}
}
