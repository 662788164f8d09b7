package view

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"sync"
	"unicode"
)

//go:embed style.css
var style string

//go:embed templates
var sources embed.FS

// Style returns the stylesheet of all pages.
func Style() string { return style }

// templates are parsed when the first Document is drawn: most runs of the program draw none.
var templates = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{
		"kind":   func(b Block) string { return strings.TrimPrefix(fmt.Sprintf("%T", b), "view.") },
		"rows":   Outline.rows,
		"number": func(i int) int { return i + 1 },
	}).ParseFS(sources, "templates/*.html"))
})

// HTML writes the Document as a standalone page that loads nothing from elsewhere.
func (d *Document) HTML(w io.Writer) error {
	var body strings.Builder
	if err := d.Fragment(&body); err != nil {
		return err
	}
	return write(w, "page.html", struct {
		Title string
		Style template.CSS
		Body  template.HTML
	}{d.Title, template.CSS(style), template.HTML(body.String())})
}

// Fragment writes the Document as a part of another page. Characters that affect the surrounding text, such
// as changes of the text direction, are replaced.
func (d *Document) Fragment(w io.Writer) error { return write(w, "blocks.html", d.Blocks) }

func write(w io.Writer, template string, data any) error {
	return templates().ExecuteTemplate(quieting{w}, template, data)
}

// quieting passes the output of a template on, and replaces control characters with quiet in each write.
type quieting struct{ w io.Writer }

func (q quieting) Write(b []byte) (int, error) {
	if _, err := q.w.Write(bytes.Map(quiet, b)); err != nil {
		return 0, err
	}
	return len(b), nil
}

// quiet replaces a control or format character, which could affect its surroundings.
func quiet(r rune) rune {
	if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
		return '\uFFFD'
	}
	return r
}

// row is a row of an outline on a page: a heading of a Class, or an item. A Child belongs to the row above.
type row struct {
	Heading, Class string
	*Item
	Child bool
}

// rows returns the rows of an outline. Consecutive items that only allowed the request are merged.
func (o Outline) rows() []row {
	var list []row
	heading := ""
	for n := 0; n < len(o.Items); n++ {
		i := &o.Items[n]
		if at := strings.TrimSuffix(i.Group+", "+i.Again, ", "); at != heading {
			heading = at
			class, _, _ := strings.Cut(i.Group, " ")
			list = append(list, row{Heading: heading, Class: class})
		}
		same := 1
		for i.Quiet && n+same < len(o.Items) && o.Items[n+same].Quiet && o.Items[n+same].Group == i.Group && o.Items[n+same].Again == i.Again {
			same++
		}
		if same > 1 {
			i = together(o.Items[n : n+same])
			n += same - 1
		}
		list = append(list, row{Item: i})
		for k := range i.Parts {
			list = append(list, row{Item: &i.Parts[k], Child: true})
		}
	}
	return list
}

// together merges several items that only allowed the request.
func together(items []Item) *Item {
	first, last := &items[0], &items[len(items)-1]
	one := &Item{Name: fmt.Sprintf("%d plugins allow it", len(items)), Bar: &Bar{first.Bar.Left, last.Bar.Left + last.Bar.Width - first.Bar.Left, first.Bar.Class}}
	var facts Facts
	for i := range items {
		facts = append(facts, Fact{Name: strings.TrimSuffix(items[i].Name+", "+items[i].Object, ", "), Text: items[i].Took})
	}
	one.Inside = []Block{facts}
	return one
}
