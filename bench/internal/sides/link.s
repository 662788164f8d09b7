// This file is empty. It lets functions be declared without a body: see go:linkname.
