package eventlog

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"glasshouse/backend/domain"
)

// appID marks our files ("GlHs"), so that a foreign database is never touched.
const appID = 0x476c4873

// A migration's number is its place in the list, from 1; user_version holds the
// number of the last one that was applied. Never change one that was released.
var migrations = []string{
	`CREATE TABLE event(
		id           INTEGER PRIMARY KEY AUTOINCREMENT,
		stream       TEXT NOT NULL,
		seq          INTEGER NOT NULL,
		at           INTEGER NOT NULL,
		type         TEXT NOT NULL,
		origin       TEXT NOT NULL,
		actor        TEXT NOT NULL,
		project      TEXT NOT NULL,
		session      TEXT NOT NULL,
		step         TEXT NOT NULL,
		data         TEXT NOT NULL,
		payload_hash BLOB NOT NULL,
		prev_hash    BLOB NOT NULL,
		hash         BLOB NOT NULL,
		redacted     INTEGER NOT NULL DEFAULT 0
	) STRICT;
	CREATE UNIQUE INDEX event_stream ON event(stream, seq);
	CREATE INDEX event_project ON event(project, id);
	CREATE INDEX event_session ON event(session, id);
	CREATE INDEX event_type ON event(type, id);
	CREATE TABLE head(
		one  INTEGER PRIMARY KEY CHECK(one = 1),
		id   INTEGER NOT NULL,
		hash BLOB NOT NULL
	) STRICT;
	INSERT INTO head VALUES(1, 0, zeroblob(32));`,
}

// inspect looks at an existing database file without SQLite, so that what is not
// ours or is cut off is refused with the file untouched. It returns the schema number.
func inspect(path string, newest int) (version int, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, explain("The event log cannot be read", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return 0, explain("The event log cannot be read", err)
	}
	if !st.Mode().IsRegular() {
		return 0, domain.E(domain.CodeUnavailable, "The event log "+path+" is not a file", "move it away", nil)
	}
	var h [100]byte
	n, err := io.ReadFull(f, h[:])
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return 0, explain("The event log cannot be read", err)
	}
	const magic = "SQLite format 3\x00"
	if n < len(magic) || string(h[:16]) != magic {
		return 0, domain.E(domain.CodeUnavailable, "The file "+path+" is not an event log (not a SQLite database)",
			"move it away, or put a backup copy in its place; it was left as it is", nil)
	}
	if n < len(h) {
		return 0, damaged(path, fmt.Sprintf("it ends after %d bytes", st.Size()))
	}
	if id := binary.BigEndian.Uint32(h[68:]); id != appID {
		return 0, domain.E(domain.CodeUnavailable, fmt.Sprintf("The database %s belongs to another program (application id %#x)", path, id),
			"move it away, or choose another data folder; it was left as it is", nil)
	}
	version = int(binary.BigEndian.Uint32(h[60:]))
	if version > newest {
		return 0, newer(path, version, newest)
	}
	// A log of ours without a write-ahead log was closed in order, so its size must be what the header says.
	if wal, err := os.Stat(path + "-wal"); err != nil || wal.Size() == 0 {
		page := int64(binary.BigEndian.Uint16(h[16:]))
		if page == 1 {
			page = 65536
		}
		want := page * int64(binary.BigEndian.Uint32(h[28:]))
		if st.Size() < want {
			return 0, damaged(path, fmt.Sprintf("it has %d bytes of %d", st.Size(), want))
		}
	}
	return version, nil
}

func damaged(path, why string) error {
	return domain.E(domain.CodeUnavailable, "The event log "+path+" is damaged: "+why,
		"put a backup copy in its place, or move it away to start a new one; it was left as it is", nil)
}

func newer(path string, version, newest int) error {
	return domain.E(domain.CodeUnavailable, fmt.Sprintf("The event log %s was written by a newer Glasshouse (schema %d, this one knows %d)", path, version, newest),
		"install the newer version; the file was left as it is", nil)
}

// create makes an empty log under another name and renames it, so that a crash
// leaves either no log or a whole one.
func create(path string, steps []string) error {
	tmp := path + ".new"
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
		_ = os.Remove(tmp + suffix)
	}
	// Made by us first: SQLite would let everybody read it, and gives the files
	// beside it the mode that this one has.
	f, err := os.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return err
	}
	db, err := sql.Open("sqlite", dsn(tmp, false))
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(1)
	err = func() error {
		if _, err := db.Exec(fmt.Sprintf("PRAGMA application_id = %d", appID)); err != nil {
			return err
		}
		return migrate(context.Background(), db, 0, steps)
	}()
	if cerr := db.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
			_ = os.Remove(tmp + suffix)
		}
		return err
	}
	if err := syncFile(tmp); err != nil {
		return err
	}
	for _, suffix := range []string{"-wal", "-shm", "-journal"} { // of a file that is gone
		_ = os.Remove(path + suffix)
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// upgrade copies the database and applies what is missing. db has one connection.
func upgrade(ctx context.Context, db *sql.DB, path string, from int, steps []string, now time.Time) error {
	if from == len(steps) {
		return nil
	}
	backup := fmt.Sprintf("%s.schema%d-%s", path, from, now.UTC().Format("20060102T150405.000"))
	f, err := os.OpenFile(backup, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600) // an empty file is taken by VACUUM INTO
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return explain("The event log cannot be copied before its upgrade", err)
	}
	if _, err := db.ExecContext(ctx, "VACUUM INTO ?", backup); err != nil {
		_ = os.Remove(backup)
		return explain("The event log cannot be copied before its upgrade", err)
	}
	if err := syncFile(backup); err != nil {
		return explain("The event log cannot be copied before its upgrade", err)
	}
	if err := syncDir(filepath.Dir(path)); err != nil {
		return explain("The event log cannot be copied before its upgrade", err)
	}
	if err := migrate(ctx, db, from, steps); err != nil {
		return explain(fmt.Sprintf("The event log cannot be upgraded (a copy is in %s)", backup), err)
	}
	// The schema number must be in the main file, where inspect looks.
	if _, err := db.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		return explain("The upgraded event log cannot be written back", err)
	}
	return nil
}

func migrate(ctx context.Context, db *sql.DB, from int, steps []string) error {
	for i := from; i < len(steps); i++ {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if _, err = tx.ExecContext(ctx, steps[i]); err == nil {
			_, err = tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", i+1))
		}
		if err != nil {
			_ = tx.Rollback()
			return fmt.Errorf("migration %d: %w", i+1, err)
		}
		if err := tx.Commit(); err != nil {
			return fmt.Errorf("migration %d: %w", i+1, err)
		}
	}
	return nil
}

// private takes the files of a log away from everybody but their owner. The data
// folder of a root core can be passed through by others, and a log of an earlier
// version could be read by them.
func private(path string) error {
	for _, suffix := range []string{"", "-wal", "-shm"} {
		st, err := os.Lstat(path + suffix)
		if errors.Is(err, os.ErrNotExist) || err == nil && (!st.Mode().IsRegular() || st.Mode().Perm()&0o077 == 0) {
			continue
		}
		if err == nil {
			err = os.Chmod(path+suffix, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	err = f.Sync()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = f.Sync()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}
