// Package scratch manages temporary directories that do not outlive their owner.
//
// A directory is locked while its process lives; the kernel releases the lock however the process
// ends. Sweep removes the directories of killed processes, and New calls it.
package scratch
