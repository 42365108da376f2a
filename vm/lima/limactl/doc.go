// Package limactl pins the version of limactl that Glasshouse bundles.
//
// It is a Go module of its own because the main module's dependencies raise
// github.com/invopop/jsonschema to a version with which limactl does not compile.
// Nothing imports it. limactl is built from this folder by
//
//	go build -trimpath -ldflags "-s -w -X github.com/lima-vm/lima/pkg/version.Version=1.2.2" \
//		-o PREFIX/bin/limactl github.com/lima-vm/lima/cmd/limactl
//
// and looks for its data in PREFIX/share/lima. Machines of ours are plain (plain: true), so no guest agent is needed
// there and the folder may be absent.
package limactl
