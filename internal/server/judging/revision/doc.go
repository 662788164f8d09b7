// Package revision says in the answer to a write by which registrations the write was judged.
package revision
