//go:build desktop && !linux

package desktop

// repairSignals has nothing to do where the web view leaves signal handlers alone.
func repairSignals() {}
