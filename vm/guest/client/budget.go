package client

import pb "google.golang.org/protobuf/proto"

// budget bounds the bytes of a list that a guest sends in pieces.
type budget int

// take reports whether one more message still fits. Each costs a little beyond
// its size, so that empty ones are bounded too.
func (b *budget) take(m pb.Message) bool {
	*b -= budget(pb.Size(m) + 64)
	return *b >= 0
}
