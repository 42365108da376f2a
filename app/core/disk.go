package core

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"glasshouse/app/httpapi"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
)

// diskEvery is how often the free space is looked at; a full log is looked into at once.
const diskEvery = time.Second

// What a disk may be: see floors.
const (
	diskOK   = "ok"
	diskLow  = "low"
	diskFull = "full"
)

// room is what a file system has, in bytes.
type room struct {
	Dir         string
	Free, Total int64
}

// floors are the bytes below which a disk counts as low and as full: one in a hundred,
// at least 256 MiB and at most 2 GiB, never more than a tenth of a small disk; and a
// quarter of that.
func floors(total int64) (low, full int64) {
	low = min(max(total/100, 256<<20), 2<<30, total/10)
	return low, low / 4
}

// next is what a disk counts as that counted as was: to be better again takes more than
// the floor, so that it does not change at every file.
func (r room) next(was string) string {
	low, full := floors(r.Total)
	if was == diskFull {
		full += full / 2
	}
	if was == diskFull || was == diskLow {
		low += low / 4
	}
	switch {
	case r.Free < full:
		return diskFull
	case r.Free < low:
		return diskLow
	}
	return diskOK
}

// text is what a person, or an agent whose step is refused, is told.
func (r room) text(state string) string {
	const make = "Free some: 'glasshouse trash empty', delete projects, or remove other files there"
	switch state {
	case diskFull:
		return fmt.Sprintf("the disk of this computer is nearly full (%s left at %s): what ran and changes something was stopped, and agents' changing steps are refused until there is space. %s", size(r.Free), r.Dir, make)
	case diskLow:
		return fmt.Sprintf("the disk of this computer is filling up (%s left at %s). %s", size(r.Free), r.Dir, make)
	}
	return fmt.Sprintf("the disk of this computer has space (%s free at %s)", size(r.Free), r.Dir)
}

func size(n int64) string {
	if n < 10<<30 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d GiB", n>>30)
}

// measureDisk asks the system.
func measureDisk(dir string) (room, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return room{}, err
	}
	return room{Dir: dir, Free: int64(st.Bavail) * int64(st.Bsize), Total: int64(st.Blocks) * int64(st.Bsize)}, nil //nolint:unconvert // the types differ between systems
}

// disk watches the free space where the data and the machines are. A machine without a
// disk of its own can fill this computer's; so can one whose disk grows on it.
type disk struct {
	dirs    []string
	measure func(dir string) (room, error)
	record  func(ctx context.Context, n event.New) error
	// stop cancels the changing steps of those it is asked about.
	stop func(ctx context.Context, why string, hit func(domain.Actor) bool) int
	// give has room that was held back given to those who need it now.
	give func() bool

	mu    sync.Mutex
	state string // of the worst of them
	told  string // the state that was recorded last
	at    room
}

// worst is the fullest of the disks.
func (d *disk) worst() (room, bool) {
	var out room
	for _, dir := range d.dirs {
		r, err := d.measure(dir)
		if err != nil || r.Total <= 0 {
			continue // of a folder that is not there yet nothing can be said
		}
		lowR, _ := floors(r.Total)
		lowO, _ := floors(max(out.Total, 1))
		if out.Total == 0 || float64(r.Free)/float64(lowR) < float64(out.Free)/float64(max(lowO, 1)) {
			out = r
		}
	}
	return out, out.Total > 0
}

// look compares what is free with what was, tells of a change, and stops what writes
// while the disk is full.
func (d *disk) look(ctx context.Context) {
	now, ok := d.worst()
	if !ok {
		return
	}
	d.mu.Lock()
	was, told := d.state, d.told
	d.state, d.at = now.next(was), now
	state := d.state
	d.mu.Unlock()
	text, stopped := now.text(state), 0
	if state == diskFull {
		// Once everybody's; then agents' alone: a person's steps may be what makes room.
		stopped = d.stop(ctx, text, func(a domain.Actor) bool { return was != diskFull || !persons(a) })
		if _, full := floors(now.Total); now.Free < full/8 {
			d.give()
		}
	}
	if state == told || told == "" && state == diskOK {
		return
	}
	actx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	err := d.record(actx, event.New{Stream: event.HostStream, Origin: domain.OriginHost, Actor: "host",
		Payload: &event.DiskSpace{State: state, Dir: now.Dir, FreeBytes: now.Free, TotalBytes: now.Total, Text: text, Stopped: stopped}})
	if err == nil { // else at the next look
		d.mu.Lock()
		d.told = state
		d.mu.Unlock()
	}
}

// persons reports whether an actor is the person before this computer.
func persons(a domain.Actor) bool { return a == "person" }

// run looks until ctx ends.
func (d *disk) run(ctx context.Context, short <-chan struct{}) {
	t := time.NewTicker(diskEvery)
	defer t.Stop()
	for {
		d.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-short:
			// The log is short at every event while the disk is full.
			select {
			case <-ctx.Done():
				return
			case <-time.After(diskEvery / 10):
			}
		}
	}
}

// refuse says why a changing step may not run now.
func (d *disk) refuse(a domain.Actor) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state != diskFull || persons(a) {
		return ""
	}
	return d.at.text(d.state)
}

// view is what the door shows.
func (d *disk) view() httpapi.Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state == "" {
		return httpapi.Disk{State: diskOK}
	}
	return httpapi.Disk{State: d.state, Dir: d.at.Dir, FreeBytes: d.at.Free, TotalBytes: d.at.Total, Text: d.at.text(d.state)}
}

// doctor is the line about it.
func (d *disk) doctor() httpapi.DoctorLine {
	v := d.view()
	l := httpapi.DoctorLine{Name: "disk space", OK: v.State == diskOK, Text: v.Text}
	if !l.OK {
		l.Fix = "see what lies in the trash with 'glasshouse trash'; a machine of the kind local has no quota of its own"
	}
	return l
}

func (c *Core) newDisk() *disk {
	return &disk{dirs: []string{c.opt.Paths.Data, c.opt.Paths.Machines()}, measure: measureDisk, record: c.record, give: c.events.GiveRoom,
		stop: func(ctx context.Context, why string, hit func(domain.Actor) bool) int {
			n := c.sessions.StopChanging(ctx, why, hit)
			if n > 0 {
				c.log.Warn("steps are stopped", "why", why, "steps", n)
			}
			return n
		}}
}

// trashed lists what deleted projects left, with what it takes on the disk.
func (c *Core) trashed(ctx context.Context) (httpapi.Trash, error) {
	dir := c.opt.Paths.Trash()
	out := httpapi.Trash{Dir: dir, Entries: []httpapi.TrashEntry{}}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err != nil {
		return out, domain.E(domain.CodeUnavailable, "the trash cannot be read", "see that "+dir+" is a folder of yours", err)
	}
	for _, e := range entries {
		x := httpapi.TrashEntry{Name: e.Name()}
		if info, err := e.Info(); err == nil {
			x.At = info.ModTime().UnixMilli()
		}
		if x.Bytes, err = usage(ctx, filepath.Join(dir, e.Name())); err != nil {
			return out, err
		}
		out.Bytes += x.Bytes
		out.Entries = append(out.Entries, x)
	}
	return out, nil
}

// usage is what a tree takes on the disk; a file with two names counts once. What
// cannot be read counts nothing.
func usage(ctx context.Context, root string) (int64, error) {
	type file struct{ dev, ino uint64 }
	seen := map[file]bool{}
	var n int64
	err := filepath.WalkDir(root, func(_ string, e fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return nil //nolint:nilerr // see above
		}
		info, err := e.Info()
		if err != nil {
			return nil //nolint:nilerr // see above
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return nil
		}
		if st.Nlink > 1 && !e.IsDir() {
			f := file{uint64(st.Dev), st.Ino} //nolint:unconvert // the types differ between systems
			if seen[f] {
				return nil
			}
			seen[f] = true
		}
		n += st.Blocks * 512
		return nil
	})
	return n, err
}

// emptyTrash removes what deleted projects left, for good.
func (c *Core) emptyTrash(ctx context.Context, by domain.Actor) (httpapi.Trash, error) {
	if !persons(by) {
		return httpapi.Trash{}, domain.E(domain.CodeDenied, "only a person may empty the trash", "", nil)
	}
	had, err := c.trashed(ctx)
	if err != nil || len(had.Entries) == 0 {
		return had, err
	}
	ctx = context.WithoutCancel(ctx) // what was begun is finished and told
	gone, errs := httpapi.Trash{Dir: had.Dir, Entries: []httpapi.TrashEntry{}}, []error(nil)
	for _, e := range had.Entries {
		if err := removeTree(filepath.Join(had.Dir, e.Name)); err != nil {
			errs = append(errs, err)
			continue
		}
		gone.Entries = append(gone.Entries, e)
		gone.Bytes += e.Bytes
	}
	if len(gone.Entries) > 0 {
		errs = append(errs, c.record(ctx, event.New{Stream: event.HostStream, Origin: domain.OriginHost, Actor: by,
			Payload: &event.TrashEmptied{Entries: len(gone.Entries), FreedBytes: gone.Bytes}}))
	}
	c.disk.look(ctx)
	if err := errors.Join(errs...); err != nil {
		return gone, domain.E(domain.CodeUnavailable, fmt.Sprintf("%d of %d entries of the trash were removed", len(gone.Entries), len(had.Entries)), "remove the rest by hand in "+had.Dir, err)
	}
	return gone, nil
}

// removeTree removes a tree in which folders may be closed to their owner too.
func removeTree(root string) error {
	err := os.RemoveAll(root)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	_ = filepath.WalkDir(root, func(p string, e fs.DirEntry, _ error) error {
		if e != nil && e.IsDir() {
			_ = os.Chmod(p, 0o700) //nolint:gosec // a folder, which WalkDir reads after this
		}
		return nil
	})
	return os.RemoveAll(root)
}
