package dev

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// templates are the files of new webhooks: those of each language, and those of all. The suffix .txt keeps
// files of Go from being part of this module.
//
//go:embed new
var templates embed.FS

// Languages are those that Init knows, the default first.
var Languages = []string{"go", "python", "js"}

// commands are how a webhook runs in the development of each language, and in tests, and what is watched.
var commands = map[string]struct{ run, test, watch string }{
	"go":     {"go run .", "[go, run, .]", ""},
	"python": {"python3 webhook.py", "[python3, webhook.py]", "--watch '*.py' "},
	"js":     {"node webhook.js", "[node, webhook.js]", "--watch '*.js' "},
}

// Init makes a directory with a webhook that works, its registration, its tests and a Makefile. It
// returns the files, and the command that runs the webhook. No file is overwritten.
func Init(dir, language string) (files []string, run string, err error) {
	if !slices.Contains(Languages, language) {
		return nil, "", fmt.Errorf("there is no webhook in %q", language)
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, "", err
	}
	if len(entries) > 0 {
		return nil, "", fmt.Errorf("%s has files already: name a new directory", dir)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, "", err
	}
	how := commands[language]
	fill := strings.NewReplacer("COMMAND", how.test, "WATCH", how.watch, "RUN", how.run)
	for _, from := range []string{language, "all"} {
		from = path.Join("new", from)
		found, err := templates.ReadDir(from)
		if err != nil {
			return nil, "", err
		}
		for _, f := range found {
			text, err := templates.ReadFile(path.Join(from, f.Name()))
			if err != nil {
				return nil, "", err
			}
			name := filepath.Join(dir, strings.TrimSuffix(f.Name(), ".txt"))
			if path.Base(from) == "all" {
				text = []byte(fill.Replace(string(text)))
			}
			if err := os.WriteFile(name, text, 0o644); err != nil {
				return nil, "", err
			}
			files = append(files, name)
		}
	}
	return files, how.watch + "-- " + how.run, nil
}
