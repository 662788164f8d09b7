// Package manifests reads registrations from manifest files: webhooks and policies that
// nobody can change or remove through the API (S21, KEP-5793).
//
// Each plugin has a directory of its own, which the AdmissionConfiguration names. Open reads
// all of them, and fails if one has a bad file. Run follows changes of the files: another
// set takes the place of the last one as a whole, or not at all.
package manifests
