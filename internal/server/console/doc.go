// Package console is a web page that shows how requests are admitted, and the traces of past requests.
//
// Handler serves the page: static files, which need no credentials and contain no data, and views. The
// page requests a view by name, and the view reads the ordinary API with the credentials of that
// request. The package grants no additional right, and keeps no data of its own. It draws the responses
// of the API with the templates of package view, which the commands also use for their pages. The list
// of requests is live: the page reads it from the API itself, and inserts it as text. Gate serves the
// page on the viewer's machine, in front of any cluster.
//
// # Texts of other authors
//
// The templates escape them. The Content-Security-Policy of the page forbids all scripts, styles and
// addresses except the server's own, and Trusted Types allow exactly one function of the page to insert
// HTML: the function that displays a drawing.
//
// # Bounds
//
// The question, the reads, the drawing and the time of a view are bounded, and so is the number of
// views drawn at once. Nothing is read or drawn for a client before the API has answered that client.
// Nothing is parsed, allocated or started before the first viewer connects.
package console
