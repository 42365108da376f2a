// Package packcheck takes a pack from an untrusted sender apart: it checks every
// byte, hash, delta, tree name and link between objects and writes the pack and
// its index into a quarantine folder. It runs in a process of its own, started
// from Glasshouse's own binary with limits on memory, CPU and file size, so that
// a pack made to exhaust the host ends that process alone.
//
// Nothing is taken over here: the parent moves the two files into the mirror
// once the report says they are good.
package packcheck

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"

	"glasshouse/backend/git/odb"
)

// Limits of one pack. Zero fields take the values of Guest.
type Limits struct {
	PackBytes   int64 `json:"pack_bytes"`
	Objects     int   `json:"objects"`
	BlobBytes   int64 `json:"blob_bytes"`   // of one blob
	DeltaBytes  int64 `json:"delta_bytes"`  // of one object that takes part in deltas, or is a commit or tree
	TotalBytes  int64 `json:"total_bytes"`  // of all objects, inflated and resolved
	Ratio       int64 `json:"ratio"`        // TotalBytes per byte of pack, above a floor of 256 MiB
	Depth       int   `json:"depth"`        // of a delta chain
	MemoryBytes int64 `json:"memory_bytes"` // of the process
	CPUSeconds  int64 `json:"cpu_seconds"`
	// Lenient lets forms pass that git no longer writes but old histories hold; for
	// a person's own repository. Names that could leave a checkout stay refused.
	Lenient bool `json:"lenient"`
}

// Guest are the limits for packs from a machine.
func Guest() Limits {
	return Limits{
		PackBytes: 512 << 20, Objects: 1_000_000, BlobBytes: 256 << 20, DeltaBytes: 64 << 20,
		TotalBytes: 8 << 30, Ratio: 1000, Depth: 4095, MemoryBytes: 1 << 30, CPUSeconds: 240,
	}
}

// Source are the limits for packs made from a person's own repository.
func Source() Limits {
	return Limits{
		PackBytes: 16 << 30, Objects: 20_000_000, BlobBytes: 4 << 30, DeltaBytes: 512 << 20,
		TotalBytes: 1 << 40, Ratio: 100_000, Depth: 4095, MemoryBytes: 4 << 30, CPUSeconds: 3600, Lenient: true,
	}
}

func (l *Limits) fill() {
	g := Guest()
	for _, f := range []struct{ v, d *int64 }{
		{&l.PackBytes, &g.PackBytes}, {&l.BlobBytes, &g.BlobBytes}, {&l.DeltaBytes, &g.DeltaBytes},
		{&l.TotalBytes, &g.TotalBytes}, {&l.Ratio, &g.Ratio}, {&l.MemoryBytes, &g.MemoryBytes}, {&l.CPUSeconds, &g.CPUSeconds},
	} {
		if *f.v <= 0 {
			*f.v = *f.d
		}
	}
	if l.Objects <= 0 {
		l.Objects = g.Objects
	}
	if l.Depth <= 0 || l.Depth > odb.MaxChain-1 {
		l.Depth = g.Depth
	}
}

// Job says what to check. It travels as one JSON argument.
type Job struct {
	Quarantine string   `json:"quarantine"` // an empty folder
	Known      []string `json:"known"`      // object directories whose objects may be built upon
	Want       []string `json:"want"`       // commits that must be there afterwards
	Limits     Limits   `json:"limits"`
}

// Finding is something a person should see; none of them stops the pack.
type Finding struct {
	Kind   string `json:"kind"` // "symlink", "submodule-url", "case-twin", "mode", …
	Object string `json:"object"`
	Name   string `json:"name,omitempty"`
	Detail string `json:"detail,omitempty"`
}

// MaxFindings bounds a report.
const MaxFindings = 1000

// Report is what the child prints.
type Report struct {
	OK       bool      `json:"ok"`
	Code     string    `json:"code,omitempty"` // "too_large", "corrupt", "refused", "missing", "failed"
	Error    string    `json:"error,omitempty"`
	Pack     string    `json:"pack,omitempty"` // pack-<hex>, without extension; empty: no objects
	Objects  int       `json:"objects"`
	Bytes    int64     `json:"bytes"`
	Inflated int64     `json:"inflated"`
	Findings []Finding `json:"findings,omitempty"`
	More     int       `json:"more_findings,omitempty"`
}

var (
	// ErrRefused: the objects hold something no checkout may ever see.
	ErrRefused = errors.New("refused")
	// ErrMissing: the objects do not connect to ones that are known.
	ErrMissing = errors.New("objects are missing")
)

// Main is the hidden command: args is one JSON Job, stdin the pack. It prints a
// Report and returns the process's exit code.
func Main(args []string, stdin io.Reader) int {
	out := json.NewEncoder(os.Stdout)
	var job Job
	if len(args) != 1 || json.Unmarshal([]byte(args[0]), &job) != nil || !filepath.IsAbs(job.Quarantine) {
		_ = out.Encode(Report{Code: "failed", Error: "this command is started by Glasshouse itself, with one JSON argument"})
		return 2
	}
	job.Limits.fill()
	if err := confine(job.Limits); err != nil {
		_ = out.Encode(Report{Code: "failed", Error: "cannot set the limits of the checking process: " + err.Error()})
		return 2
	}
	debug.SetGCPercent(50)
	debug.SetMemoryLimit(job.Limits.MemoryBytes * 3 / 4)
	rep, err := Run(job, stdin)
	if err != nil {
		rep.OK, rep.Code, rep.Error = false, codeOf(err), err.Error()
		if len(rep.Error) > 1000 {
			rep.Error = rep.Error[:1000] + "…"
		}
		_ = out.Encode(rep)
		return 1
	}
	rep.OK = true
	if out.Encode(rep) != nil {
		return 2
	}
	return 0
}

func codeOf(err error) string {
	switch {
	case errors.Is(err, odb.ErrTooLarge):
		return "too_large"
	case errors.Is(err, odb.ErrCorrupt):
		return "corrupt"
	case errors.Is(err, ErrRefused):
		return "refused"
	case errors.Is(err, ErrMissing), errors.Is(err, odb.ErrNotFound):
		return "missing"
	}
	return "failed"
}

// Run checks one pack in this process.
func Run(job Job, r io.Reader) (rep Report, err error) {
	job.Limits.fill()
	known, err := odb.Open(job.Known...)
	if err != nil {
		return rep, err
	}
	defer known.Close()
	path := filepath.Join(job.Quarantine, "incoming.pack")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return rep, err
	}
	defer f.Close()
	c := &checker{lim: job.Limits, f: f, known: known, links: map[odb.ID]string{}, modules: map[odb.ID]bool{}, needs: map[odb.ID]odb.Type{}, rep: &rep}
	if err := c.receive(r); err != nil {
		return rep, err
	}
	if err := c.resolve(); err != nil {
		return rep, err
	}
	if err := c.connect(job.Want); err != nil {
		return rep, err
	}
	if err := c.readFlagged(); err != nil {
		return rep, err
	}
	rep.Objects, rep.Bytes, rep.Inflated = len(c.entries), c.end+20, c.total
	if len(c.entries) == 0 {
		return rep, nil
	}
	if err := f.Sync(); err != nil {
		return rep, err
	}
	name := fmt.Sprintf("pack-%x", c.sum)
	ix, err := os.OpenFile(filepath.Join(job.Quarantine, name+".idx"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return rep, err
	}
	defer ix.Close()
	list := make([]odb.IndexEntry, len(c.entries))
	for i := range c.entries {
		list[i] = odb.IndexEntry{ID: c.entries[i].id, Offset: c.entries[i].off, CRC: c.entries[i].crc}
	}
	if err := odb.WriteIndex(ix, list, c.sum); err != nil {
		return rep, err
	}
	if err := ix.Sync(); err != nil {
		return rep, err
	}
	if err := os.Rename(path, filepath.Join(job.Quarantine, name+".pack")); err != nil {
		return rep, err
	}
	rep.Pack = name
	return rep, nil
}
