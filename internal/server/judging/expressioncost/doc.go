// Package expressioncost computes the costs of the expressions of policies: in the worst case,
// where the schemas of the kinds bound the cost, and in evaluations so far (S16.22).
package expressioncost
