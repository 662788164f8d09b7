// Package view says what a person sees: of a trace, a plan, findings, and comparisons. It says so once,
// as a Document, and draws a Document for a terminal, as Markdown and as HTML.
//
// A Document is plain data: headings, sentences, facts, tables, changes, expressions with their values,
// and what took part in a request in its order. The sentences stand in the functions that make Documents,
// OfTrace and the others, and nowhere else. A command writes a Document in the format that is asked for;
// the console asks for the same one as a fragment of its page. There is one set of templates and one
// stylesheet for both.
//
// # What others wrote
//
// Names, messages and objects come from users that may write to the API, and from webhooks. Each drawer
// makes them harmless in its own medium, in one place: package terminal shows what would act on a
// terminal; html/template escapes all of them, and no page has a script: a page of its own has a
// Content-Security-Policy that forbids everything but its own styles. In Markdown they stand in
// code spans, in which nothing is markup and which mention no user, or are escaped.
//
// # Bounds
//
// A Document has a bounded part of what it is about, and says what it leaves out. Nothing is parsed
// or allocated before the first page is drawn.
package view
