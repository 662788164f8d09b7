// Package pages draws what people look at: traces, plans, findings and reports, as HTML and as
// Markdown.
//
// A View is what one page shows. The commands write it as a page of its own, which needs nothing
// from elsewhere; the console asks for the same View as a fragment of its page. There is one set of
// templates and one stylesheet for both.
//
// # What others wrote
//
// Names, messages and objects come from users that may write to the API, and from webhooks. In HTML
// html/template escapes all of them, and no page has a script: a page of its own has a
// Content-Security-Policy that forbids everything but its own styles. In Markdown they stand in
// code spans, in which nothing is markup and which mention no user.
//
// # Bounds
//
// A View draws a bounded part of what it is given, and says what it leaves out. Nothing is parsed
// or allocated before the first View is drawn.
package pages
