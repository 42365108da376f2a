package wire

import "glasshouse/backend/secret"

// Scrub takes the key out of a text, in plain and in every form it leaks in, and puts
// "[key]" in its place.
func Scrub(text, key string) string { return secret.Hide(text, key) }
