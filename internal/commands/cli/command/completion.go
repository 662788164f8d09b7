package command

import (
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// Completes makes the shell complete the value of a flag. Values before a comma are kept.
func Completes(cmd *cobra.Command, flag string, values func() []string) {
	err := cmd.RegisterFlagCompletionFunc(flag, func(_ *cobra.Command, _ []string, given string) ([]string, cobra.ShellCompDirective) {
		before := given[:strings.LastIndex(given, ",")+1]
		return beginning(given, before, values()), cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err)
	}
}

// beginning returns the values that match the given text, each with a prefix.
func beginning(given, prefix string, values []string) []string {
	var list []string
	for _, v := range values {
		if strings.HasPrefix(prefix+v, given) {
			list = append(list, prefix+v)
		}
	}
	return list
}

// CompletesArguments makes the shell complete all arguments of a command.
func CompletesArguments(cmd *cobra.Command, values func() []string) {
	cmd.ValidArgsFunction = func(_ *cobra.Command, _ []string, given string) ([]string, cobra.ShellCompDirective) {
		return beginning(given, "", values()), cobra.ShellCompDirectiveNoFileComp
	}
}

// CompletesObject makes the shell complete the first argument of a command, KIND/NAME.
func CompletesObject(cmd *cobra.Command, kinds func() []string, names func(kind string) []string) {
	cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, given string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		if kind, _, ok := strings.Cut(given, "/"); ok {
			return beginning(given, kind+"/", names(kind)), cobra.ShellCompDirectiveNoFileComp
		}
		var list []string
		for _, kind := range beginning(given, "", kinds()) {
			list = append(list, kind+"/")
		}
		return list, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}

// Values returns a fixed list of values for Completes.
func Values(list ...string) func() []string { return func() []string { return list } }

// Completion from a cluster takes at most completionTimeout and offers at most mostCompleted names.
const (
	completionTimeout = 2 * time.Second
	mostCompleted     = 500
)

// inTime returns the values, or none after completionTimeout. Each request to the cluster has that timeout too,
// but there may be several requests.
func inTime(values func() []string) []string {
	answer := make(chan []string, 1)
	go func() { answer <- values() }()
	select {
	case list := <-answer:
		return list
	case <-time.After(completionTimeout):
		return nil
	}
}
