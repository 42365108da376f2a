package eventlog

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	sqlite3 "modernc.org/sqlite/lib"
)

// A full disk must not keep a person from what would free it: a cancel, the end of a
// session, the stop of a machine and the deletion of a project are recorded like
// everything else. So the log holds room while there is some:
//
//   - Free pages in the database, and blocks behind the end of its write-ahead log
//     where the system can do that. Nobody can take them from it, however fast he
//     writes, and they outlive a crash.
//   - The ballast, a file beside them. It is given up when the log itself finds no
//     room, and by GiveRoom for the small files that others must write then.
//
// Both are made again by themselves when there is space.

// BallastName is the file of the ballast in the log's folder.
const BallastName = "ballast"

const (
	mostPages   = 4 << 20  // bytes of free pages in the database
	mostAhead   = 8 << 20  // behind the end of the write-ahead log
	mostBallast = 32 << 20 // of a disk of 2 GiB and more
	// roomEvery is how long after something was written, or room was refused, the log
	// looks whether it holds enough.
	roomEvery = time.Second
)

// room is what the log holds of the disk beyond what it uses.
type room struct {
	dir   string
	wal   string  // path of the write-ahead log
	db    *sql.DB // the writer's
	page  int64   // bytes of one
	pages int64   // bytes of free pages that are wanted
	ahead int64   // bytes behind the end of the write-ahead log
	want  int64   // bytes of the ballast

	// Of the writer goroutine alone: when it looks next, the write-ahead log's size as
	// it was seen last, and up to where blocks are there.
	look           <-chan time.Time
	walSize, walTo int64

	mu    sync.Mutex
	held  bool
	short chan struct{} // told at each refusal
}

func newRoom(dir string, db *sql.DB) *room {
	r := &room{dir: dir, wal: filepath.Join(dir, FileName+"-wal"), db: db, pages: mostPages, ahead: mostAhead, want: mostBallast, short: make(chan struct{}, 1)}
	if total, _, ok := space(dir); ok {
		r.pages, r.ahead, r.want = min(r.pages, total/64), min(r.ahead, total/64), min(r.want, total/64)
	}
	r.lookSoon()
	return r
}

func (r *room) ballast() string { return filepath.Join(r.dir, BallastName) }

// lookSoon has keep called in a while.
func (r *room) lookSoon() {
	if r.look == nil {
		r.look = time.After(roomEvery)
	}
}

// keep takes again what was used up; the writer goroutine calls it between transactions.
func (r *room) keep() {
	r.look = nil
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.keepPages()
	if ahead := r.keepAhead(); err == nil {
		err = ahead
	}
	if err == nil && !r.held {
		err = r.fill()
	}
	if err != nil {
		r.lookSoon()
	}
	if full(err) {
		r.tell()
	}
}

// errLittle: what is free is not the log's to take.
var errLittle = errors.New("little is free")

// plenty reports whether n bytes more may be held.
func (r *room) plenty(n int64) error {
	if _, free, ok := space(r.dir); !ok || free < 4*n {
		return errLittle
	}
	return nil
}

// keepPages sees to it that there are free pages in the database: they are there
// once something was written to them and thrown away, and on the disk once they were
// written back.
func (r *room) keepPages() error {
	ctx := context.Background()
	var free, all int64
	for q, to := range map[string]*int64{"PRAGMA freelist_count": &free, "PRAGMA page_size": &r.page} {
		if err := r.db.QueryRowContext(ctx, q).Scan(to); err != nil {
			return err
		}
	}
	if missing := r.pages - free*r.page; missing > r.pages/2 {
		if err := r.plenty(2 * missing); err != nil { // in the write-ahead log too
			return err
		}
		if err := r.freePages(ctx); err != nil {
			return err
		}
	}
	if err := r.db.QueryRowContext(ctx, "PRAGMA page_count").Scan(&all); err != nil {
		return err
	}
	st, err := os.Stat(filepath.Join(r.dir, FileName))
	if err != nil || st.Size() >= all*r.page {
		return err
	}
	_, err = r.db.ExecContext(ctx, "PRAGMA wal_checkpoint(PASSIVE)")
	return err
}

func (r *room) freePages(ctx context.Context) error {
	tx, err := r.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // nothing after a commit
	for _, s := range []string{"CREATE TABLE room(x BLOB)", fmt.Sprintf("INSERT INTO room VALUES(zeroblob(%d))", r.pages), "DROP TABLE room"} {
		if _, err := tx.ExecContext(ctx, s); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// keepAhead puts blocks behind the end of the write-ahead log. No lock of SQLite's is
// on that file: it may be opened and closed.
func (r *room) keepAhead() error {
	wal, err := os.OpenFile(r.wal, os.O_RDWR, 0)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil // it comes with the first event
		}
		return err
	}
	defer wal.Close()
	st, err := wal.Stat()
	if err != nil {
		return err
	}
	if st.Size() < r.walSize {
		r.walTo = st.Size() // it was cut, and what was behind its end is gone
	}
	r.walSize = st.Size()
	// It is written from its beginning again and again, so its size is no measure of
	// what is used of it.
	if r.walTo >= max(r.ahead, st.Size()+r.ahead/4) {
		return nil
	}
	to := max(r.ahead, st.Size()+r.ahead/2)
	if err := allocate(wal, st.Size(), to-st.Size()); err != nil {
		return supported(err)
	}
	r.walTo = to
	return nil
}

// supported forgives a file system that keeps no blocks behind the end of a file.
func supported(err error) error {
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EINVAL) {
		return nil
	}
	return err
}

// fill makes the ballast where enough stays free beside it.
func (r *room) fill() error {
	f, err := os.OpenFile(r.ballast(), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if st.Size() == r.want && st.Mode().IsRegular() {
		r.held = true // of the log's last run
		return nil
	}
	if err := r.plenty(r.want); err != nil {
		return err
	}
	if err = allocate(f, 0, r.want); err == nil {
		err = f.Truncate(r.want)
	} else if supported(err) == nil {
		// Written, and with what no file system can make smaller.
		if _, err = io.CopyN(f, rand.Reader, r.want); err == nil {
			err = f.Sync()
		}
	}
	if err != nil {
		_ = f.Truncate(0)
		return err
	}
	r.held = true
	return nil
}

// give lets go of the ballast and reports whether there was one.
func (r *room) give() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tell()
	f, err := os.OpenFile(r.ballast(), os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || st.Size() == 0 || f.Truncate(0) != nil {
		return false
	}
	_ = f.Sync() // some file systems hand blocks out again only then
	r.held = false
	return true
}

func (r *room) tell() {
	select {
	case r.short <- struct{}{}:
	default:
	}
}

// full reports whether an error says that there is no room on the disk.
func full(err error) bool {
	return err != nil && (sqliteCode(err)&0xff == sqlite3.SQLITE_FULL || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) ||
		sqliteCode(err) == sqlite3.SQLITE_IOERR_SHMSIZE)
}

// withRoom does what a full disk refused again with the room that is held: first what
// the write-ahead log holds is written back, so that it can be used from its beginning,
// then the ballast is given up.
func (l *Log) withRoom(try func() error) error {
	err := try()
	if !full(err) {
		return err
	}
	l.room.tell()
	if _, cerr := l.w.ExecContext(context.Background(), "PRAGMA wal_checkpoint(PASSIVE)"); cerr == nil {
		if err = try(); !full(err) {
			return err
		}
	}
	if l.room.give() {
		_, _ = l.w.ExecContext(context.Background(), "PRAGMA wal_checkpoint(PASSIVE)")
		err = try()
	}
	return err
}

// GiveRoom gives the ballast back to the file system for others to use, and reports
// whether there was one. It is made again when there is space.
func (l *Log) GiveRoom() bool { return l.room.give() }

// Short is told when the disk had no room for the log.
func (l *Log) Short() <-chan struct{} { return l.room.short }

// How often, and how long apart, a log is opened on a disk without room: SQLite gives a
// few blocks back before it asks for them again, and somebody else may be faster once.
const (
	openTries = 50
	openAgain = 50 * time.Millisecond
)

// mayBeFull is full, or that a mapped page could not be had: a file that was made longer
// while others take each block as it gets free has none behind its end. A disk that is
// broken says so too, and says it again.
func mayBeFull(err error) bool {
	return full(err) || sqliteCode(err) == sqlite3.SQLITE_IOERR_IN_PAGE
}

// opened opens a log; where the disk is so full that not even that is possible, what
// the last run held is given up for it.
func opened(dir string, open func() (*Log, error)) (*Log, error) {
	l, err := open()
	for range openTries {
		if !mayBeFull(err) {
			break
		}
		(&room{dir: dir, short: make(chan struct{}, 1)}).give()
		wal := filepath.Join(dir, FileName+"-wal")
		if st, serr := os.Stat(wal); serr == nil {
			_ = os.Truncate(wal, st.Size()) // lets go of what is behind its end, and of nothing else
		}
		if l, err = open(); mayBeFull(err) {
			time.Sleep(openAgain)
		}
	}
	return l, err
}
