package storage

import (
	"runtime"
	"testing"
	"weak"
)

// S22.24: a caller that still has a closed store does not keep the store's watch cache in
// memory.
func TestAClosedStoreKeepsNoCache(t *testing.T) {
	destroyed := false
	l := &lazy{
		open:  func() (*direct, error) { return &direct{close: func() {}}, nil },
		cache: func(*direct) (*opened, error) { return &opened{destroy: func() { destroyed = true }}, nil },
	}
	o, err := l.get()
	if err != nil {
		t.Fatal(err)
	}
	cache := weak.Make(o)
	l.close()
	runtime.GC()
	if cache.Value() != nil || !destroyed {
		t.Errorf("the cache is kept: %t; it was destroyed: %t", cache.Value() != nil, destroyed)
	}
	if _, err := l.get(); err == nil {
		t.Error("a closed store is opened again")
	}
}
