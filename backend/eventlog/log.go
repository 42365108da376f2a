package eventlog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
)

// Log is an open event log. Its methods may be called from any goroutine.
type Log struct {
	dir  string
	opt  Options
	lock *os.File

	w *sql.DB // one connection, used by the writer goroutine alone
	r *sql.DB // readers
	// What every transaction runs; parsing it each time would take a fifth of its time.
	insert, head *sql.Stmt
	reqs         chan *request
	stop         chan struct{} // closed by Close: no new requests
	done         chan struct{} // closed when the writer goroutine ended
	once         sync.Once
	cerr         error

	ring *ring // recent events, for live readers
	room *room // held on the disk, so that what is needed on a full one can be written

	committed atomic.Int64 // id of the newest event on disk
	writer    writerState

	subMu sync.RWMutex
	subs  map[*Subscription]struct{}

	redactMu sync.RWMutex // held by Redact for writing, by Verify for reading
	dropped  atomic.Int64
}

// Open opens or makes the log in dir. What is no log of ours, is newer than this
// program, or is damaged is refused with the file untouched.
func Open(dir string, opt Options) (*Log, error) {
	return opened(dir, func() (*Log, error) { return open(dir, opt, migrations) })
}

func open(dir string, opt Options, steps []string) (_ *Log, err error) {
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Ring <= 0 {
		opt.Ring = 4096
	}
	if opt.Transients <= 0 {
		opt.Transients = 512
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, explain("The data folder "+dir+" cannot be made", err)
	}
	l := &Log{
		dir: dir, opt: opt,
		reqs: make(chan *request, 1024), stop: make(chan struct{}), done: make(chan struct{}),
		subs: map[*Subscription]struct{}{},
	}
	defer func() {
		if err != nil {
			l.closeFiles()
		}
	}()

	if l.lock, err = os.OpenFile(filepath.Join(dir, FileName+".lock"), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, explain("The data folder "+dir+" cannot be used", err)
	}
	if ok, err := lockFile(l.lock); err != nil {
		return nil, explain("The data folder "+dir+" cannot be locked", err)
	} else if !ok {
		return nil, domain.E(domain.CodeConflict, "Another Glasshouse uses the data folder "+dir, "stop it first, or choose another folder", nil)
	}

	path := filepath.Join(dir, FileName)
	if err := private(path); err != nil {
		return nil, explain("The event log "+path+" cannot be kept private", err)
	}
	version := len(steps)
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist), err == nil && st.Mode().IsRegular() && st.Size() == 0:
		if wal, err := os.Stat(path + "-wal"); err == nil && wal.Size() > 0 {
			return nil, damaged(path, "its main file is empty or gone, but "+filepath.Base(path)+"-wal holds data")
		}
		if err := create(path, steps); err != nil {
			return nil, explain("The event log cannot be made in "+dir, err)
		}
	case err != nil:
		return nil, explain("The event log cannot be read", err)
	default:
		if version, err = inspect(path, len(steps)); err != nil {
			return nil, err
		}
		if err := check(path, len(steps)); err != nil {
			return nil, err
		}
	}

	if l.w, err = sql.Open("sqlite", dsn(path, false)); err != nil {
		return nil, explain("The event log cannot be opened", err)
	}
	l.w.SetMaxOpenConns(1)
	ctx := context.Background()
	// Inside the write-ahead log the number may be newer than in the main file.
	if err := l.w.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return nil, explain("The event log cannot be opened", err)
	}
	if version > len(steps) {
		return nil, newer(path, version, len(steps))
	}
	if err := upgrade(ctx, l.w, path, version, steps, opt.Now()); err != nil {
		return nil, err
	}
	if l.insert, err = l.w.PrepareContext(ctx, insertSQL); err == nil {
		l.head, err = l.w.PrepareContext(ctx, headSQL)
	}
	if err != nil {
		return nil, explain("The event log cannot be opened", err)
	}
	if l.r, err = sql.Open("sqlite", dsn(path, true)); err != nil {
		return nil, explain("The event log cannot be opened", err)
	}
	l.r.SetMaxOpenConns(4)
	l.r.SetMaxIdleConns(4)
	if err := l.writer.load(ctx, l.w); err != nil {
		return nil, explain("The event log cannot be opened", err)
	}
	l.committed.Store(l.writer.id)
	l.ring = newRing(opt.Ring, 16<<20, l.writer.id)
	l.room = newRoom(dir, l.w)
	if opt.HoldNow {
		l.room.keep()
	}
	if err := l.openBlobs(); err != nil {
		return nil, err
	}
	go l.write()
	return l, nil
}

// check reads the database once without the right to change it. Deep checks are
// left to Verify when the file is large.
func check(path string, newest int) error {
	db, err := sql.Open("sqlite", uri(path)+"?mode=ro&_pragma=query_only(1)&_pragma=busy_timeout(5000)")
	if err != nil {
		return explain("The event log cannot be read", err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	var id, version int
	if err := db.QueryRow("PRAGMA application_id").Scan(&id); err != nil {
		return explain("The event log cannot be read", err)
	}
	if err := db.QueryRow("PRAGMA user_version").Scan(&version); err != nil {
		return explain("The event log cannot be read", err)
	}
	if id != appID {
		return domain.E(domain.CodeUnavailable, "The database "+path+" belongs to another program", "move it away; it was left as it is", nil)
	}
	if version > newest {
		return newer(path, version, newest)
	}
	if st, err := os.Stat(path); err == nil && st.Size() < 64<<20 {
		var answer string
		if err := db.QueryRow("PRAGMA quick_check(1)").Scan(&answer); err != nil {
			return explain("The event log cannot be read", err)
		}
		if answer != "ok" {
			return damaged(path, answer)
		}
	}
	return nil
}

func uri(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	return "file:" + (&url.URL{Path: filepath.ToSlash(path)}).EscapedPath()
}

func dsn(path string, readOnly bool) string {
	q := "?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)" +
		"&_pragma=secure_delete(1)&_pragma=journal_size_limit(8388608)&_pragma=wal_autocheckpoint(1000)&_pragma=trusted_schema(0)"
	if readOnly {
		q = "?_pragma=busy_timeout(10000)&_pragma=query_only(1)&_pragma=trusted_schema(0)"
	}
	return uri(path) + q
}

// Dir is the log's folder.
func (l *Log) Dir() string { return l.dir }

// LatestID is the id of the newest event; 0 = none yet.
func (l *Log) LatestID() int64 { return l.committed.Load() }

// Head is the newest event's id and hash.
func (l *Log) Head(ctx context.Context) (Head, error) {
	var h Head
	var sum []byte
	if err := l.r.QueryRowContext(ctx, "SELECT id, hash FROM head").Scan(&h.ID, &sum); err != nil {
		return Head{}, l.readErr(err)
	}
	h.Hash = fmt.Sprintf("%x", sum)
	return h, nil
}

// LatestSeq is the newest sequence number of a stream; 0 = the stream is empty.
func (l *Log) LatestSeq(ctx context.Context, s event.Stream) (int64, error) {
	var seq sql.NullInt64
	err := l.r.QueryRowContext(ctx, "SELECT max(seq) FROM event WHERE stream = ?", string(s)).Scan(&seq)
	if err != nil {
		return 0, l.readErr(err)
	}
	return seq.Int64, nil
}

func (l *Log) readErr(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	select {
	case <-l.done:
		return ErrClosed
	default:
	}
	return explain("The event log cannot be read", err)
}

// Close writes what waits, ends every subscription and closes the files.
func (l *Log) Close() error {
	l.once.Do(func() {
		close(l.stop)
		<-l.done
		l.subMu.Lock()
		for s := range l.subs {
			s.poke()
		}
		l.subMu.Unlock()
		// A log that was closed in order leaves no write-ahead log behind.
		if _, err := l.w.Exec("PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
			l.cerr = explain("The event log cannot be closed in order", err)
		}
		l.closeFiles()
	})
	return l.cerr
}

func (l *Log) closeFiles() {
	if l.r != nil {
		_ = l.r.Close()
	}
	if l.w != nil {
		for _, st := range []*sql.Stmt{l.insert, l.head} {
			if st != nil {
				_ = st.Close()
			}
		}
		_ = l.w.Close()
	}
	if l.lock != nil {
		// Freed by name: a process that is just being started has a copy of the file
		// for a moment, and would hold the lock until then.
		unlockFile(l.lock)
		_ = l.lock.Close()
	}
}
