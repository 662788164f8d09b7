package builtins

import (
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/catalog"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/stores"
)

// Read is offline.Read for plans that prepare and validate objects as a server does.
func Read(paths []string) (*offline.World, error) {
	w, err := offline.Read(paths)
	if err == nil {
		prepare(w)
	}
	return w, err
}

// prepare enables the preparation of objects in plans. Clusters allow privileged containers, unless a server in this
// process has already decided.
func prepare(w *offline.World) {
	_ = catalog.AllowPrivileged(true)
	w.Registry = stores.Builtin
}
