// Package changing has the commands that change admission safely: rollout, audit, record, replay and
// wait-in-force.
package changing
