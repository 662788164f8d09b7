// Package deepcopy copies values of API types. Upstream's types have generated methods for that;
// those of this module, of which few copies are made, use reflection, which forgets no field.
package deepcopy
