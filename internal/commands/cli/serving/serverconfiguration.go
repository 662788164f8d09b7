package serving

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	yamlv3 "go.yaml.in/yaml/v3"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
	"github.com/gatehouse-dev/gatehouse/internal/kit/nearest"
	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
	"github.com/gatehouse-dev/gatehouse/internal/server"
)

// serverConfigurationKind is the kind of the configuration file of serve. Its fields are the flags of serve;
// there is no separate list.
const serverConfigurationKind = "ServerConfiguration"

// notConfigured are the flags of serve that are not fields: the flags about the file itself and about a single
// run.
var notConfigured = []string{"config", "print-config", "help", "test"}

// serverConfiguration reads the configuration file of serve.
type serverConfiguration struct {
	file  string
	print bool
}

// addTo adds the flags, and makes the command read the file before it runs.
func (c *serverConfiguration) addTo(cmd *cobra.Command) {
	command.AddSection(cmd, "Configuration", func(f *pflag.FlagSet) {
		f.StringVar(&c.file, "config", "", "ServerConfiguration `file` with the values of flags; a flag on the command line wins")
		f.BoolVar(&c.print, "print-config", false, "print the configuration that the flags and the file make, as such a file, and exit")
	})
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if c.file == "" {
			return nil
		}
		data, err := files.ReadArgument(c.file, files.Configuration)
		if err == nil {
			err = configure(cmd.Flags(), data)
		}
		if err != nil {
			var at *fs.PathError
			if errors.As(err, &at) {
				err = at.Err
			}
			return command.Usagef("--config %s: %w", c.file, err)
		}
		return nil
	}
}

// fieldName is the field of a flag, such as etcdServers for --etcd-servers.
func fieldName(flag string) string {
	words := strings.Split(flag, "-")
	for i, w := range words[1:] {
		words[i+1] = strings.ToUpper(w[:1]) + w[1:]
	}
	return strings.Join(words, "")
}

// configurable returns the flags that are fields, by field name, and the field names in the order of the flags.
func configurable(flags *pflag.FlagSet) (byField map[string]*pflag.Flag, names []string) {
	byField = map[string]*pflag.Flag{}
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || slices.Contains(notConfigured, f.Name) {
			return
		}
		name := fieldName(f.Name)
		byField[name] = f
		names = append(names, name)
	})
	return byField, names
}

// configure sets the flags that are absent from the command line to the values of a file.
func configure(flags *pflag.FlagSet, data []byte) error {
	documents := yamlv3.NewDecoder(bytes.NewReader(data))
	var document, second yamlv3.Node
	if err := documents.Decode(&document); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	switch err := documents.Decode(&second); {
	case err == nil:
		return fmt.Errorf("line %d: is a second document; a configuration is one", second.Line)
	case !errors.Is(err, io.EOF):
		return err
	}
	wanted := fmt.Sprintf("write apiVersion: %s and kind: %s", command.ConfigVersion, serverConfigurationKind)
	if len(document.Content) == 0 {
		return fmt.Errorf("is empty: %s", wanted)
	}
	root := document.Content[0]
	if root.Kind != yamlv3.MappingNode {
		return fmt.Errorf("line %d: is not a list of fields: %s", root.Line, wanted)
	}
	byField, names := configurable(flags)
	values := map[string]*yamlv3.Node{}
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		if value.Kind == yamlv3.AliasNode {
			value = value.Alias
		}
		switch name := key.Value; {
		case values[name] != nil:
			return fmt.Errorf("line %d: field %s is there twice", key.Line, name)
		case name != "apiVersion" && name != "kind" && byField[name] == nil:
			return fmt.Errorf("line %d: unknown field %s%s", key.Line, name, nearest.Suggestion("", name, names))
		default:
			values[name] = value
		}
	}
	text := func(field string) string {
		if value := values[field]; value != nil {
			return value.Value
		}
		return ""
	}
	if text("apiVersion") != command.ConfigVersion || text("kind") != serverConfigurationKind {
		return fmt.Errorf("is of kind %q in version %q: %s", text("kind"), text("apiVersion"), wanted)
	}
	for _, name := range names {
		f, value := byField[name], values[name]
		if value == nil || f.Changed {
			continue
		}
		if err := setField(flags, f, value); err != nil {
			return fmt.Errorf("line %d: field %s: %w", value.Line, name, err)
		}
	}
	return nil
}

// The types of fields.
const (
	fieldText    = "string"
	fieldNumber  = "integer"
	fieldBoolean = "boolean"
	fieldList    = "array"
	fieldObject  = "object"
)

// fieldType returns the type of a flag's field.
func fieldType(f *pflag.Flag) string {
	switch kind := f.Value.Type(); {
	case kind == "stringSlice", kind == "stringArray", kind == "strings":
		return fieldList
	case kind == "bool":
		return fieldBoolean
	case strings.HasPrefix(kind, "int"), strings.HasPrefix(kind, "uint"):
		return fieldNumber
	case strings.HasPrefix(kind, "mapString"):
		return fieldObject
	}
	return fieldText
}

// setField sets a flag to the value of its field.
func setField(flags *pflag.FlagSet, f *pflag.Flag, value *yamlv3.Node) error {
	switch kind := fieldType(f); {
	case kind == fieldList:
		if value.Kind != yamlv3.SequenceNode {
			return errors.New("must be a list")
		}
		list := []string{}
		for _, element := range value.Content {
			if element.Kind != yamlv3.ScalarNode || element.Tag == "!!null" {
				return errors.New("must be a list of strings")
			}
			list = append(list, element.Value)
		}
		slice, ok := f.Value.(pflag.SliceValue)
		if !ok {
			// pflag hides the type of the list and parses one line.
			return shortFlagError(flags.Set(f.Name, strings.Join(list, ",")))
		}
		f.Changed = true
		return slice.Replace(list)
	case kind == fieldObject:
		if value.Kind != yamlv3.MappingNode {
			return errors.New("must be an object with strings")
		}
		for i := 0; i+1 < len(value.Content); i += 2 {
			if err := flags.Set(f.Name, value.Content[i].Value+"="+value.Content[i+1].Value); err != nil {
				return shortFlagError(err)
			}
		}
		return nil
	case value.Kind != yamlv3.ScalarNode, !slices.Contains(tagsOf[kind], value.Tag):
		return fmt.Errorf("must be %s", articles[kind])
	}
	return shortFlagError(flags.Set(f.Name, value.Value))
}

// tagsOf maps the type of a field to its YAML types. A size is a number or a string.
var tagsOf = map[string][]string{
	fieldText:    {"!!str", "!!int"},
	fieldNumber:  {"!!int"},
	fieldBoolean: {"!!bool"},
}

var articles = map[string]string{fieldText: "a string", fieldNumber: "an integer", fieldBoolean: "true or false"}

// shortFlagError returns the cause of a flag error, without the name of the flag, which the error of the line
// has.
func shortFlagError(err error) error {
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		return errors.Unwrap(invalid)
	}
	return err
}

// write validates the options and prints the flags as a configuration file. Defaults are comments, since some
// flags have another effect when they are set. Fields without a value are omitted.
func (c *serverConfiguration) write(out io.Writer, flags *pflag.FlagSet, o *serveOptions) error {
	if _, err := server.New(o.server); err != nil {
		return command.UsageError{Err: err}
	}
	terminal.Fprintf(out, "apiVersion: %s\nkind: %s\n", command.ConfigVersion, serverConfigurationKind)
	byField, names := configurable(flags)
	for _, name := range names {
		f := byField[name]
		value := fieldValue(f)
		if value == nil {
			continue
		}
		var text strings.Builder
		e := yamlv3.NewEncoder(&text)
		e.SetIndent(2)
		if err := errors.Join(e.Encode(&yamlv3.Node{Kind: yamlv3.MappingNode, Content: []*yamlv3.Node{scalar(name, "!!str"), value}}), e.Close()); err != nil {
			return err
		}
		for line := range strings.Lines(text.String()) {
			if !f.Changed {
				line = "# " + line
			}
			if _, err := io.WriteString(out, line); err != nil {
				return err
			}
		}
	}
	return nil
}

func scalar(text, tag string) *yamlv3.Node {
	return &yamlv3.Node{Kind: yamlv3.ScalarNode, Value: text, Tag: tag}
}

// fieldValue converts the value of a flag to the value of its field; nil if it is empty.
func fieldValue(f *pflag.Flag) *yamlv3.Node {
	text := f.Value.String()
	switch fieldType(f) {
	case fieldNumber:
		return scalar(text, "!!int")
	case fieldBoolean:
		return scalar(text, "!!bool")
	case fieldText:
		if text == "" {
			return nil
		}
		return scalar(text, "!!str")
	}
	var elements []string
	if slice, ok := f.Value.(pflag.SliceValue); ok {
		elements = slice.GetSlice()
	} else if text = strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"); text != "" {
		elements = strings.Split(text, ",")
	}
	if len(elements) == 0 {
		return nil
	}
	list := &yamlv3.Node{Kind: yamlv3.SequenceNode}
	if fieldType(f) == fieldObject {
		list.Kind = yamlv3.MappingNode
	}
	for _, element := range elements {
		if list.Kind == yamlv3.MappingNode {
			key, value, _ := strings.Cut(element, "=")
			list.Content = append(list.Content, scalar(key, "!!str"))
			element = value
		}
		list.Content = append(list.Content, scalar(element, "!!str"))
	}
	return list
}
