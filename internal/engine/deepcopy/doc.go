// Package deepcopy copies values of API types. The types of k8s.io/api have generated methods for
// this; the types of this module use reflection, which forgets no field, because they are rarely
// copied.
package deepcopy
