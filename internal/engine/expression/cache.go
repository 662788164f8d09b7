package expression

import (
	"sync"
	"weak"
)

// Cache makes expressions, and makes equal ones only once. It keeps only expressions that are
// still in use. Its zero value is ready.
type Cache struct {
	mu struct {
		sync.Mutex
		expressions map[key]weak.Pointer[Expression]
		variables   map[string]weak.Pointer[Variables]
		// swept is how many expressions and variables were left after the last sweep.
		swept int
	}
}

// Expression returns the expression of a text; see New.
func (c *Cache) Expression(text string, scope Scope, variables *Variables, result Result) *Expression {
	k := key{text, scope, variables, result}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.mu.expressions[k].Value(); e != nil {
		return e
	}
	c.sweep()
	if c.mu.expressions == nil {
		c.mu.expressions = map[key]weak.Pointer[Expression]{}
	}
	e := New(text, scope, variables, result)
	c.mu.expressions[k] = weak.Make(e)
	return e
}

// Variables returns the variables of a list; see NewVariables.
func (c *Cache) Variables(list []Variable, scope Scope) *Variables {
	k := variablesKey(list, scope)
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := c.mu.variables[k].Value(); v != nil {
		return v
	}
	c.sweep()
	if c.mu.variables == nil {
		c.mu.variables = map[string]weak.Pointer[Variables]{}
	}
	v := NewVariables(list, scope)
	c.mu.variables[k] = weak.Make(v)
	return v
}

// Len returns how many expressions are in use, and may count some that no longer are.
func (c *Cache) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.mu.expressions)
}

// sweep forgets expressions and variables that are not used any more, once there are twice as
// many as after the last sweep.
func (c *Cache) sweep() {
	n := len(c.mu.expressions) + len(c.mu.variables)
	if n < 2*c.mu.swept || n < 64 {
		return
	}
	for k, p := range c.mu.expressions {
		if p.Value() == nil {
			delete(c.mu.expressions, k)
		}
	}
	for k, p := range c.mu.variables {
		if p.Value() == nil {
			delete(c.mu.variables, k)
		}
	}
	c.mu.swept = len(c.mu.expressions) + len(c.mu.variables)
}
