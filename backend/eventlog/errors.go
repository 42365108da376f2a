package eventlog

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"glasshouse/backend/domain"
)

var (
	// ErrClosed: the log was closed. Nothing of the call was written.
	ErrClosed = domain.E(domain.CodeUnavailable, "The event log is closed", "the core is stopping; try again when it runs", nil)
)

func sqliteCode(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code()
	}
	return 0
}

// explain makes an error of the database or the file system one that says what to do.
func explain(what string, err error) error {
	if err == nil {
		return nil
	}
	var known *domain.Error
	if errors.As(err, &known) {
		return err
	}
	if full(err) {
		return domain.E(domain.CodeUnavailable, what+": the disk is full", "free some space; nothing that was confirmed is lost", err)
	}
	switch sqliteCode(err) & 0xff {
	case sqlite3.SQLITE_IOERR:
		return domain.E(domain.CodeUnavailable, what+": the disk reports an error", "check its space and health; nothing that was confirmed is lost", err)
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM:
		return domain.E(domain.CodeUnavailable, what+": the database cannot be written", "make the data folder and its files writable for this user", err)
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return domain.E(domain.CodeUnavailable, what+": the database is damaged", "put a backup copy in its place; the damaged file was left as it is", err)
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return domain.E(domain.CodeConflict, what+": another program holds the database", "close the program that opened "+FileName, err)
	}
	switch {
	case errors.Is(err, syscall.EROFS), errors.Is(err, fs.ErrPermission):
		return domain.E(domain.CodeUnavailable, what+": no permission to write there", "make the data folder writable for this user, or choose another one", err)
	}
	return domain.E(domain.CodeInternal, what, "", err)
}

func invalid(format string, args ...any) error {
	return domain.E(domain.CodeInvalid, fmt.Sprintf(format, args...), "", nil)
}
