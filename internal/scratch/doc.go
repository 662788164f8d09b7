// Package scratch keeps temporary directories that do not outlive their owner.
//
// A directory is locked while the process that has it lives; the kernel gives the lock
// free however the process ends. Sweep removes the directories of killed processes, which the
// next process that makes one does, too.
package scratch
