package modeltest

// Seal is what a thought of the server is signed with.
func Seal(thought string) string { return seal(thought) }
