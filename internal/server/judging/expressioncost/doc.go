// Package expressioncost finds out how much the expressions of policies cost: in the worst
// case, where the schemas of the kinds bound the cost, and in evaluations so far (S16.22).
package expressioncost
