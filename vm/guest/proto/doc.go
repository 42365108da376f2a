// Package proto is the wire between the host and guestd: generated messages and
// services, the limits both sides keep, and the checks behind every decoder.
package proto

//go:generate protoc --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative guest.proto
