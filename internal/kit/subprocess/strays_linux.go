package subprocess

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
)

// strays returns the processes that were started with an entry in their environment.
func strays(entry string) (ids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		// A process that has ended, or of another user, has none.
		environment, _ := os.ReadFile(file)
		for one := range bytes.SplitSeq(environment, []byte{0}) {
			if string(one) == entry {
				id, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
				ids = append(ids, id)
				break
			}
		}
	}
	return ids
}
