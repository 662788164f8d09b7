// Package image finds the command that runs the program of an image from its source.
//
// It follows the Dockerfile backwards: from the entry point through COPY to the command that builds the file, or to a
// file of the build context. It reads files only and runs nothing. The remaining packages decide whether to run the
// command, which is code of the project.
package image
