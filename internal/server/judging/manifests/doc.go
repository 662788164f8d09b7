// Package manifests reads registrations from manifest files: webhooks and policies that users
// cannot change or remove through the API (S21, KEP-5793).
//
// Each plugin has a directory of its own, which the AdmissionConfiguration names. Open reads
// all directories, and fails if one has a bad file. Run follows changes of the files: a new set
// replaces the last set as a whole, or not at all.
package manifests
