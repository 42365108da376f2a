//go:build !linux

package image

import (
	"io/fs"
	"os"
)

func clone(out, in *os.File) bool { return false }

type fileID struct{ dev, ino uint64 }

func idOf(fs.FileInfo) (fileID, bool) { return fileID{}, false }

func mine(fs.FileInfo) bool { return false }

func freeSpace(string) (int64, bool) { return 0, false }
