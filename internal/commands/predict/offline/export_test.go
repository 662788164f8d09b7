package offline

// Resources lists the resources from discovery, for the test of kinds.txt.
var Resources = resources

// All returns all kinds, for the test of the tables of releases.
func (k *Kinds) All() []*Kind { return k.list }
