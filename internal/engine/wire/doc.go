// Package wire encodes and decodes protobuf messages by the field numbers in struct tags. It uses
// reflection and no generated code, for types with few values.
package wire
