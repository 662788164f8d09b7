// Package view draws traces, plans, findings and comparisons for people. Each is converted once to a
// Document, and a Document is drawn for a terminal, as Markdown and as HTML.
//
// A Document is plain data: headings, sentences, facts, tables, changes, expressions with their values,
// and the participants of a request in order. Only the functions that make Documents, OfTrace and the
// others, contain sentences. A command writes a Document in the requested format; the console requests
// the same Document as a fragment of its page. Both use one set of templates and one stylesheet.
//
// # Texts of other authors
//
// Names, messages and objects come from users with write access to the API, and from webhooks. Each
// drawer makes them harmless for its own medium, in one place: package terminal makes characters visible
// that would control a terminal; html/template escapes all texts, no page has a script, and a standalone
// page has a Content-Security-Policy that forbids everything except its own styles. In Markdown they are
// escaped, or put into code spans, in which nothing is markup and no user is mentioned.
//
// # Bounds
//
// A Document has a bounded part of its subject, and reports omissions. Nothing is parsed or allocated
// before the first page is drawn.
package view
