package proc

import (
	"os/exec"
	"path/filepath"
)

// Look finds a program in PATH and returns its absolute path. It starts nothing.
func Look(name string) (string, error) {
	p, err := exec.LookPath(name)
	if err != nil {
		return "", err
	}
	return filepath.Abs(p)
}
