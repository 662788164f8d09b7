// Package replay judges requests that were made, or objects that there are, by the registrations of
// a baseline and by those with a change, and reports what differs.
package replay
