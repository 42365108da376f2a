package cli

import (
	"net/url"
	"strings"
)

// at is the place of a call below /v1, part by part. The client takes no other: a part is
// often what a person wrote, and must not become two parts, a query or another place.
type at []string

// url returns the address on the core's socket, or says which part is no name of anything.
func (a at) url() (string, error) {
	var b strings.Builder
	b.WriteString("http://core/v1")
	for _, part := range a {
		switch part {
		case "":
			return "", usage("an empty name or id names nothing")
		case ".", "..": // a path with these is another path, escaped or not
			return "", usage("%q is no name or id", part)
		}
		b.WriteByte('/')
		b.WriteString(url.PathEscape(part))
	}
	return b.String(), nil
}
