//go:build !unix

package odb

const openFlags = 0
