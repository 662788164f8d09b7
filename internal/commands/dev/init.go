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

// templates are the files of new webhooks: one directory for each language, and one for all. The suffix
// .txt keeps Go files out of this module.
//
//go:embed new
var templates embed.FS

// Languages are the languages that Init supports, the default first.
var Languages = []string{"go", "python", "js"}

// commands are, for each language, the commands that run a webhook in development and in tests, and the
// watched files.
var commands = map[string]struct{ run, test, watch string }{
	"go":     {"go run .", "[go, run, .]", ""},
	"python": {"python3 webhook.py", "[python3, webhook.py]", "--watch '*.py' "},
	"js":     {"node webhook.js", "[node, webhook.js]", "--watch '*.js' "},
}

// Init creates a directory with a working webhook, its registration, its tests and a Makefile. It returns
// the files, and the command that runs the webhook. It overwrites no file.
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
