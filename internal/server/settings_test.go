package server

import (
	"reflect"
	"strings"
	"testing"
)

// The error about a file that does not exist is one sentence, which names the flag.
func TestAFileThatDoesNotExistIsNamed(t *testing.T) {
	if _, err := newSettings(Options{DataDir: t.TempDir(), TracingConfigFile: "nowhere.yaml"}); err == nil || !strings.HasPrefix(err.Error(), "--tracing-config-file: open nowhere.yaml") {
		t.Errorf("got %v for a file that does not exist", err)
	}
}

// Headers of proxies have the names in kube-apiserver's documents, except for the uid: a client could
// set its own uid through a proxy that does not remove this header (S22.17).
func TestHeadersOfProxies(t *testing.T) {
	s, err := newSettings(Options{DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	p := s.proxies
	if got, want := [][]string{p.UsernameHeaders, p.GroupHeaders, p.ExtraHeaderPrefixes, p.UIDHeaders},
		[][]string{{"X-Remote-User"}, {"X-Remote-Group"}, {"X-Remote-Extra-"}, nil}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestEveryDefaultIsUsed: Defaults has the settings of a server without options.
func TestEveryDefaultIsUsed(t *testing.T) {
	s, err := newSettings(Options{DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defaults, used := reflect.ValueOf(Defaults()), reflect.ValueOf(s.Options)
	for i, field := range reflect.VisibleFields(defaults.Type()) {
		if want := defaults.Field(i); !want.IsZero() && !reflect.DeepEqual(used.Field(i).Interface(), want.Interface()) {
			t.Errorf("%s is %v, want %v", field.Name, used.Field(i), want)
		}
	}
}

// TestWhatIsChosenIsNoDefault: no default replaces an option that was set.
func TestWhatIsChosenIsNoDefault(t *testing.T) {
	chosen := Options{DataDir: t.TempDir()}
	defaults, v := reflect.ValueOf(Defaults()), reflect.ValueOf(&chosen).Elem()
	for i, field := range reflect.VisibleFields(v.Type()) {
		if defaults.Field(i).IsZero() {
			continue
		}
		switch value := v.Field(i); value.Kind() {
		case reflect.String:
			value.SetString("chosen")
		case reflect.Int, reflect.Int64:
			value.SetInt(1)
		case reflect.Slice:
			value.Set(reflect.MakeSlice(field.Type, 1, 1))
		case reflect.Struct:
			value.Field(0).SetInt(1)
		case reflect.Pointer:
			value.Set(reflect.New(field.Type.Elem()))
		default:
			t.Fatalf("%s is a %s", field.Name, value.Kind())
		}
	}
	got := chosen.withDefaults()
	if !reflect.DeepEqual(got, chosen) {
		t.Errorf("got %+v, want %+v", got, chosen)
	}
}
