package pages

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"sync"
	"time"
	"unicode"
)

//go:embed style.css
var style string

//go:embed templates
var sources embed.FS

// Style is the stylesheet of all pages.
func Style() string { return style }

// View is what one page shows. The zero View cannot be drawn.
type View struct {
	// Title is that of the page.
	Title string

	// template is the name of its template, and data what the template is given.
	template string
	data     any
	// markdown writes the View as Markdown; nil if it has no such form.
	markdown func(*markdown)
}

// Of returns a View of a report of its own kind, by the template of a name: "coverage" or "replay".
// It has no Markdown.
func Of(title, template string, data any) View {
	return View{Title: title, template: template, data: data}
}

// templates are parsed when the first View is drawn: most runs of the program draw none.
var templates = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{
		"join":  func(list []string) string { return strings.Join(list, ", ") },
		"bar":   newBar,
		"plain": func(v any) string { return fmt.Sprint(v) },
	}).ParseFS(sources, "templates/*.html"))
})

// HTML writes the View as a page of its own, which needs nothing from elsewhere.
func (v View) HTML(w io.Writer) error {
	var body strings.Builder
	if err := v.Fragment(&body); err != nil {
		return err
	}
	return write(w, "page.html", struct {
		Title string
		Style template.CSS
		Body  template.HTML
	}{v.Title, template.CSS(style), template.HTML(body.String())})
}

// Fragment writes the View as a part of another page. Characters that act on what stands around
// them, such as those that change the direction of a text, are replaced.
func (v View) Fragment(w io.Writer) error {
	return write(w, v.template+".html", v.data)
}

func write(w io.Writer, template string, data any) error {
	return templates().ExecuteTemplate(quieting{w}, template, data)
}

// quieting passes on what a template writes, a part of it after the other, each of them quiet.
type quieting struct{ w io.Writer }

func (q quieting) Write(b []byte) (int, error) {
	if _, err := q.w.Write(bytes.Map(quiet, b)); err != nil {
		return 0, err
	}
	return len(b), nil
}

// quiet is a character that only stands for itself.
func quiet(r rune) rune {
	if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
		return '\uFFFD'
	}
	return r
}

// Markdown writes the View for job summaries and pull requests.
func (v View) Markdown(w io.Writer) error {
	m := &markdown{}
	m.line("# %s", escaped(v.Title))
	v.markdown(m)
	_, err := io.WriteString(w, m.b.String())
	return err
}

// Format writes the View as html or markdown.
func (v View) Format(w io.Writer, format string) error {
	if format == "markdown" {
		return v.Markdown(w)
	}
	return v.HTML(w)
}

// barWidth is how many units a bar is wide.
const barWidth = 1000

// bar is a part of a line: of a time, or of a number of things.
type bar struct {
	Left, Width float64
	Class       string
}

// newBar is the bar of n things of so many.
func newBar(n, most int, class string) bar {
	return bar{Width: float64(n) * barWidth / float64(max(most, 1)), Class: class}
}

// Brief is a time of so many microseconds, in three digits.
func Brief(micros int64) string {
	d := time.Duration(micros) * time.Microsecond
	switch {
	case d >= 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= 10*time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.String()
}
