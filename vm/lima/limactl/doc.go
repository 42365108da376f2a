// Package limactl pins the version of limactl that Glasshouse bundles.
//
// It is a Go module of its own because the main module's dependencies raise
// github.com/invopop/jsonschema to a version with which limactl does not compile.
// Nothing imports it; limactl is built from this folder by
//
//	go build -o PREFIX/bin/limactl github.com/lima-vm/lima/cmd/limactl
package limactl
