package command

import (
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// Completes has the shell complete the value of a flag. Values before a comma stay.
func Completes(cmd *cobra.Command, flag string, values func() []string) {
	err := cmd.RegisterFlagCompletionFunc(flag, func(_ *cobra.Command, _ []string, given string) ([]string, cobra.ShellCompDirective) {
		before := given[:strings.LastIndex(given, ",")+1]
		return beginning(given, before, values()), cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err)
	}
}

// beginning returns the values that begin with what is given, each after a prefix.
func beginning(given, prefix string, values []string) []string {
	var list []string
	for _, v := range values {
		if strings.HasPrefix(prefix+v, given) {
			list = append(list, prefix+v)
		}
	}
	return list
}

// CompletesArguments has the shell complete all arguments of a command.
func CompletesArguments(cmd *cobra.Command, values func() []string) {
	cmd.ValidArgsFunction = func(_ *cobra.Command, _ []string, given string) ([]string, cobra.ShellCompDirective) {
		return beginning(given, "", values()), cobra.ShellCompDirectiveNoFileComp
	}
}

// CompletesObject has the shell complete the first argument of a command, KIND/NAME.
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

// Values are those of a flag that has a fixed set of them.
func Values(list ...string) func() []string { return func() []string { return list } }

// What the shell is offered of a cluster: it waits no longer than completionTimeout, and gets no more
// than mostCompleted names.
const (
	completionTimeout = 2 * time.Second
	mostCompleted     = 500
)

// inTime returns the values, or none when the time of the shell is over. Each request to the cluster ends
// in that time, too, but there may be several.
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
