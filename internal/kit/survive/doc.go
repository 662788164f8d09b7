// Package survive runs the parts of a server that neither store objects nor admit requests, such as
// controllers. A panic in such a part ends the part, and not the server: Check fails from then on,
// and the log has the panic. docs/dev/decisions/013-parts-end-alone.md lists the parts that must not
// end alone.
package survive
