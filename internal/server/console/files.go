package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/readers/view"
)

// Prefix is the path of the page, and viewPrefix the path of its views.
const (
	Prefix     = "/console/"
	viewPrefix = Prefix + "view/"
)

//go:embed static
var static embed.FS

type file struct {
	content   []byte
	kind, tag string
}

// contents are the files by name. They are read when the first viewer connects.
var contents = sync.OnceValue(func() map[string]file {
	list := map[string]file{}
	add := func(name string, content []byte, kind string) {
		sum := sha256.Sum256(content)
		list[name] = file{content, kind, `"` + hex.EncodeToString(sum[:8]) + `"`}
	}
	kinds := map[string]string{".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
	entries, err := fs.ReadDir(static, "static")
	if err != nil {
		panic("console: the embedded files cannot be read: " + err.Error())
	}
	for _, e := range entries {
		content, err := static.ReadFile("static/" + e.Name())
		if err != nil {
			panic("console: the embedded files cannot be read: " + err.Error())
		}
		add(e.Name(), content, kinds[path.Ext(e.Name())])
	}
	add("style.css", []byte(view.Style()), kinds[".css"])
	return list
})

const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types gatehouse"

// Secure sets the headers of every response of the console.
func Secure(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}

// Handler serves the console in front of an API. The files of the page need no credentials, because
// a browser sends no token when it opens a page. A view reads the API with the credentials of its
// request.
func Handler(api http.Handler) http.Handler {
	turns := make(chan struct{}, maxViews)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		view, viewed := strings.CutPrefix(req.URL.Path, viewPrefix)
		file, ours := strings.CutPrefix(req.URL.Path, Prefix)
		switch {
		case viewed:
			serveView(w, req, view, api, turns)
		case ours:
			serveFile(w, req, file)
		case req.URL.Path == strings.TrimSuffix(Prefix, "/"):
			http.Redirect(w, req, Prefix, http.StatusMovedPermanently)
		default:
			api.ServeHTTP(w, req)
		}
	})
}

func serveFile(w http.ResponseWriter, req *http.Request, name string) {
	Secure(w.Header())
	if name == "" {
		name = "index.html"
	}
	f, ok := contents()[name]
	switch {
	case !ok:
		http.Error(w, "the console has no such file", http.StatusNotFound)
		return
	case req.Method != http.MethodGet && req.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "the files of the console can only be read: use GET", http.StatusMethodNotAllowed)
		return
	}
	h := w.Header()
	h.Set("Content-Type", f.kind)
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", f.tag)
	http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(f.content))
}
