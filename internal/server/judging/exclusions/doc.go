// Package exclusions follows the administrator's exclusion rules in the file of the
// AdmissionConfiguration while a server runs.
package exclusions
