package offline

// Resources is what discovery tells of, for the test of kinds.txt.
var Resources = resources
