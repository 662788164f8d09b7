// Package expressioncost finds out what the expressions of policies cost: what they cost in the worst
// case, where the schemas of the kinds bound it, and what they cost so far (S16.22).
package expressioncost
