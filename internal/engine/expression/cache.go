package expression

import (
	"runtime"
	"sync"
	"weak"
)

// Cache creates expressions, and shares equal ones. It keeps only expressions that are still in
// use. Its zero value is ready.
type Cache struct {
	expressions shared[key, Expression]
	variables   shared[string, Variables]
}

// Expression returns the expression of a text; see New.
func (c *Cache) Expression(text string, scope Scope, variables *Variables, result Result) *Expression {
	return c.expressions.get(key{text, scope, variables, result}, func() *Expression { return New(text, scope, variables, result) })
}

// Variables returns the variables of a list; see NewVariables.
func (c *Cache) Variables(list []Variable, scope Scope) *Variables {
	return c.variables.get(variablesKey(list, scope), func() *Variables { return NewVariables(list, scope) })
}

// shared has the values in use, by key.
type shared[K comparable, V any] struct {
	mu     sync.Mutex
	values map[K]weak.Pointer[V]
}

// get returns the value of a key, or a new value if none is in use.
func (s *shared[K, V]) get(k K, made func() *V) *V {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.values[k].Value(); v != nil {
		return v
	}
	if s.values == nil {
		s.values = map[K]weak.Pointer[V]{}
	}
	v := made()
	s.values[k] = weak.Make(v)
	runtime.AddCleanup(v, s.forget, k)
	return v
}

// forget removes the key of a value that is no longer in use, unless there is a new value.
func (s *shared[K, V]) forget(k K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.values[k].Value() == nil {
		delete(s.values, k)
	}
}
