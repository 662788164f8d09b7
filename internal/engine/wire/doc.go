// Package wire writes and reads messages in protobuf by the numbers in the tags of their fields. It
// uses reflection and no generated code, for types of which there are never many values.
package wire
