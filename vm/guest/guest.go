// Package guest is the contract of what can be done inside a machine once its
// channel is open. guest/client implements it on the host over yamux and gRPC;
// guest/agent is the other end. Everything that comes back is a claim of the
// guest: sizes are capped by the client, strings are raw bytes that must be
// escaped before they are shown.
//
// The package imports only the standard library; nothing under vm/guest imports
// anything of Glasshouse outside vm/guest, so guestd stays small.
package guest

import (
	"context"
	"errors"
	"io"
	"time"
)

// Generation counts incompatible changes of the wire. Both sides say theirs in
// the hello and use the lower; see proto/VERSIONING.md.
const Generation = 1

// Paths inside every guest.
const (
	Workspace = "/workspace"
	Home      = "/home/agent"
	ProxyAddr = "127.0.0.1:3128"
)

// Guest is an open channel to one guestd. It is safe for concurrent use. Every
// method returns ErrGone (wrapped) once the channel is lost.
type Guest interface {
	Hello() Hello
	Execs() Execs
	Files() Files
	Checkpoints() Checkpoints
	Git() Git
	// Browser starts Chromium in the guest and returns its DevTools pipe:
	// NUL-separated JSON messages. ctx bounds the start alone. Closing the pipe
	// ends that Chromium, as do EndSession and the loss of the channel. One runs
	// per profile; a second call for a profile in use is an error.
	Browser(ctx context.Context, spec BrowserSpec) (io.ReadWriteCloser, error)
	// Watch streams changes of the workspace until ctx ends. The first batch
	// has the current epoch and may be empty; what is written after it is told.
	Watch(ctx context.Context) (<-chan ChangeBatch, error)
	Stats(ctx context.Context) (Stats, error)
	// Shutdown syncs the file systems and powers the guest off.
	Shutdown(ctx context.Context) error
	// Done is closed when the channel is lost; Err then says why.
	Done() <-chan struct{}
	Err() error
	Close() error
}

// Hello is what guestd said of itself when the channel opened.
type Hello struct {
	Generation int
	BootID     string // new at every boot: a changed BootID means running executions are lost
	AgentHash  string // sha256 of the running guestd, hex
	Hostname   string
	Kind       string   // "vm" or "sandbox"
	Cgroups    bool     // executions run in cgroups of their own
	Notes      []string // what does not work as it should in this guest, in its words (at most 16 of 500 bytes)
}

// Execs runs commands. An execution belongs to guestd's journal, not to the
// channel: it goes on when the core goes, and Attach finds it again.
type Execs interface {
	// Start runs a command. The returned Process streams its output until ctx
	// ends; the execution itself goes on.
	Start(ctx context.Context, spec ExecSpec) (Process, error)
	// Attach joins an execution by id, from the given output offsets: running
	// ones stream on, ended ones deliver what is kept and the exit.
	// ErrNoExec when guestd knows none of that id.
	Attach(ctx context.Context, id string, stdoutFrom, stderrFrom int64) (Process, error)
	// Terminal joins an execution that has a TTY. Its output goes on without an end;
	// what is no longer kept from the offset on is left out: the next Output's Offset leaps.
	Terminal(ctx context.Context, id string, from int64) (Process, error)
	// List returns every execution in the journal, running or ended and not yet forgotten.
	List(ctx context.Context) ([]ExecState, error)
	// Kill ends the whole process tree of an execution, background children
	// included: SIGTERM, then SIGKILL after grace. It returns once no process is left.
	Kill(ctx context.Context, id string, grace time.Duration) error
	// Forget drops an ended execution from the journal once its outcome is safe on the host.
	Forget(ctx context.Context, ids ...string) error
	// EndSession kills the background children that executions of a session left running.
	EndSession(ctx context.Context, session string) error
}

// ExecSpec is one command. Argv is passed as is, never through a shell.
type ExecSpec struct {
	ID      string // chosen by the host, unique for ever
	Session string
	Step    string
	Argv    []string
	Dir     string            // absolute; default Workspace
	Env     map[string]string // added to the guest's base environment
	Stdin   bool              // stdin stays open for Process.Stdin; else it is /dev/null
	TTY     *Winsize          // a pseudo-terminal; stderr is then empty
	Timeout time.Duration     // 0 = none; afterwards the tree is killed and Exit.TimedOut set
	Grace   time.Duration     // between SIGTERM and SIGKILL; default 2s
	// OutputLimit is how many bytes per stream are kept and sent (default 8 MiB,
	// at most 64 MiB); later bytes are read and dropped, counted, and the last
	// TailBytes (64 KiB) of them come in Exit. With a TTY it is a window instead: the
	// newest bytes are kept, nothing is dropped while a reader keeps up, and offsets go on.
	OutputLimit int64
	Limits      Limits
	Root        bool // run as the guest's root instead of the agent user (VM only)
}

// Limits of one execution; zero = the machine's default.
type Limits struct {
	MemoryMiB int
	Pids      int
}

// Winsize of a pseudo-terminal, in cells.
type Winsize struct{ Rows, Cols uint16 }

// TailBytes is how much of a stream past its OutputLimit is kept.
const TailBytes = 64 << 10

// Process is a running (or ended and attached) execution.
type Process interface {
	ID() string
	// Next returns output as it comes; io.EOF after the last, when Exit is known.
	Next() (Output, error)
	// Exit is valid after Next returned io.EOF.
	Exit() Exit
	Write(p []byte) (int, error) // stdin
	CloseStdin() error
	Signal(sig int) error
	Resize(Winsize) error
	// Close detaches from the stream; the execution goes on.
	Close() error
}

// Output is one piece of a stream. Offset is its place in the stream.
type Output struct {
	Stderr bool
	Offset int64
	Data   []byte
}

// StreamEnd says how one output stream ended. What came as Output, then
// Dropped bytes that nobody has, then Tail make up Total.
type StreamEnd struct {
	Total   int64  // bytes the process wrote
	Dropped int64  // bytes between the kept part and Tail
	Tail    []byte // the last bytes past the limit, at most TailBytes
}

// Exit is how an execution ended.
type Exit struct {
	Code       int    // -1 when ended by a signal
	Signal     string // "SIGKILL" and the like, else empty
	TimedOut   bool
	Killed     bool   // by Kill
	OOM        bool   // the kernel's counter said so
	StartError string // the command could not be started: why
	Unknown    bool   // the machine ended under it; nothing is known
	Stdout     StreamEnd
	Stderr     StreamEnd
	UserCPU    time.Duration
	SysCPU     time.Duration
	MaxRSSKiB  int64
	StartedAt  time.Time
	EndedAt    time.Time
	Background []BackgroundProcess // children still running after the command ended
}

// BackgroundProcess is a child that outlived its command.
type BackgroundProcess struct {
	Pid  int
	Argv []string // at most 32 words of 256 bytes
}

// ExecState is one line of the journal.
type ExecState struct {
	ID, Session, Step string
	Argv              []string
	Running           bool
	Exit              Exit // when not running
	Stdout, Stderr    int64
}

// Files reads and writes below /workspace, /home/agent and /tmp, never through a
// link that leaves them. Paths are absolute or relative to /workspace.
type Files interface {
	Stat(ctx context.Context, path string) (FileInfo, error)
	// Read returns up to limit bytes from offset (limit at most 8 MiB), and the file's info with its sha256.
	Read(ctx context.Context, path string, offset, limit int64) (FileData, error)
	// Write replaces or creates a file atomically (temporary file, fsync, rename), making parent folders.
	Write(ctx context.Context, path string, data []byte, opt WriteOptions) (FileInfo, error)
	Remove(ctx context.Context, path string, recursive bool) error
	Mkdir(ctx context.Context, path string) error
	// List returns a folder's entries by name, at most limit.
	List(ctx context.Context, path string, limit int) (entries []FileInfo, more bool, err error)
	// Glob matches ** patterns, ignored files left out unless all is set.
	Glob(ctx context.Context, pattern string, all bool, limit int) (paths []string, more bool, err error)
	Search(ctx context.Context, q SearchQuery) (SearchResult, error)
}

// FileInfo describes one file. Sha256 is set by Read, Write and Stat of regular files up to 64 MiB.
type FileInfo struct {
	Path    string
	Type    string // "file", "dir", "link", "other"
	Size    int64
	Mode    uint32 // permission bits
	ModTime time.Time
	Sha256  string
	Target  string // of a link
	Ignored bool   // List of the workspace: git would ignore it
}

// FileData is a piece of a file.
type FileData struct {
	Info   FileInfo
	Data   []byte
	Offset int64
}

// WriteOptions of Files.Write.
type WriteOptions struct {
	Mode    uint32 // permission bits for a new file; 0 = keep or 0644
	IfMatch string // sha256 the file must have now; "absent" = must not exist; "" = any
}

// SearchQuery is one ripgrep search.
type SearchQuery struct {
	Pattern    string
	Literal    bool
	IgnoreCase bool
	Path       string // below which; default Workspace
	Glob       string
	Limit      int // matches; default 200, at most 2000
}

// SearchResult holds matches in path and line order.
type SearchResult struct {
	Matches []Match
	More    bool
}

// Match is one line that matched; Text is cut at 1,000 bytes.
type Match struct {
	Path string
	Line int
	Text string
}

// Checkpoints keep the workspace's tree in a shadow git directory outside it.
type Checkpoints interface {
	// Take syncs the file system and records the workspace. When nothing was
	// written since the last one, Same is set and no git ran.
	Take(ctx context.Context, req CheckpointRequest) (Checkpoint, error)
	// Diff lists the changed files between two checkpoints.
	Diff(ctx context.Context, from, to string) ([]FileChange, bool, error)
	// Restore makes the workspace equal to a checkpoint, taking one first (returned).
	Restore(ctx context.Context, commit string) (before Checkpoint, err error)
	// Show returns a file as a checkpoint holds it. ErrNotFound when there is no
	// such checkpoint; a file that it does not hold has Mode 0.
	Show(ctx context.Context, q ShowRequest) (KeptFile, error)
}

// ShowRequest names a file of a checkpoint.
type ShowRequest struct {
	Commit string
	Before bool   // of the checkpoint before Commit; there may be none, then nothing is held
	Path   string // relative to the workspace; never an expression
	Limit  int64  // bytes wanted, at most 8 MiB
}

// KeptFile is a file of a checkpoint, or its first bytes.
type KeptFile struct {
	Mode uint32 // of git: 0100644, 0100755, 0120000 (a link: Data is its target); 0 = no such file
	Size int64
	Data []byte
}

// CheckpointRequest says what the checkpoint is of.
type CheckpointRequest struct {
	Session, Step string
	Full          bool // scan everything, do not trust the watcher
}

// Checkpoint is a recorded state of the workspace.
type Checkpoint struct {
	Commit      string // in the shadow directory
	Tree        string
	Parent      string
	Same        bool
	Changes     []FileChange // against the parent, at most 1,000
	More        bool         // there were more
	Ignored     int          // ignored files, not captured
	NotCaptured []string     // too large or unreadable, at most 100
	Sum         string       // sha256 over the tree's listing, for the witness
}

// FileChange is one path that differs.
type FileChange struct {
	Path    string
	OldPath string // of a rename
	Op      string // "add", "modify", "delete", "rename", "mode", "type"
	OldMode uint32
	NewMode uint32
	Added   int // lines
	Deleted int
	Binary  bool
}

// Git moves objects in and out of the workspace's repository. All objects travel as packs.
type Git interface {
	// Import makes /workspace a repository out of a pack: HEAD on branch at
	// commit, and the working tree checked out. empty = a repository without commits.
	Import(ctx context.Context, req ImportRequest, pack io.Reader) error
	// Repair makes the repository anew round the files of /workspace, as Import would
	// but without touching them, where there is none or one that has not the commit of
	// req. What stood in its place is kept inside the new one. It reports whether it
	// had to; the pack is then read.
	Repair(ctx context.Context, req ImportRequest, pack io.Reader) (made bool, err error)
	// Head says what HEAD is, and whether the tree is clean.
	Head(ctx context.Context) (HeadInfo, error)
	// Candidate returns the commit to review against base: HEAD when it moved
	// and the tree is clean, else a commit made with a private index (the
	// user's index and HEAD stay as they are).
	Candidate(ctx context.Context, base, message string) (Candidate, error)
	// Export writes a pack of want without what have reaches.
	Export(ctx context.Context, want []string, have []string, maxBytes int64) (io.ReadCloser, error)
}

// ImportRequest of Git.Import.
type ImportRequest struct {
	Branch                  string // short name; empty with Commit set = detached HEAD
	Commit                  string // 40 hex; empty = no commits
	Refs                    map[string]string
	AuthorName, AuthorEmail string // set as the repository's user
	// Overlay holds dirty files of the source a person picked, written over the checkout.
	Overlay []OverlayFile
}

// OverlayFile is one dirty file brought along at import; Deleted removes it.
type OverlayFile struct {
	Path    string
	Mode    uint32
	Data    []byte
	Deleted bool
}

// HeadInfo of the workspace's repository.
type HeadInfo struct {
	Branch string
	Commit string // empty before the first commit
	Clean  bool
	Repo   bool // false: /workspace is no repository
}

// Candidate is a commit in the guest's repository.
type Candidate struct {
	Commit string
	Tree   string
	Own    bool // the agent's own commit
}

// BrowserSpec of a Chromium.
type BrowserSpec struct {
	Profile string // one process per profile; [a-z0-9-]+
	Width   int
	Height  int
	Session string
}

// ChangeBatch is a set of changed paths.
type ChangeBatch struct {
	Epoch    uint64 // changes when events may have been missed
	Seq      uint64
	Changes  []PathChange
	Resync   bool // a full scan replaced the stream
	Degraded bool // polling: watches ran out
	Dropped  int
}

// PathChange is one path in a batch.
type PathChange struct {
	Path string
	Op   string // "add", "modify", "delete"
	Size int64
	Mode uint32
}

// Stats of the guest now.
type Stats struct {
	CPUPercent                float64 // of one core
	MemUsedKiB, MemTotalKiB   int64
	DiskUsedKiB, DiskTotalKiB int64
	Procs                     int
	Load1                     float64
	Uptime                    time.Duration
}

// EgressHandler is the host's side of the only door. guestd relays each
// connection made to ProxyAddr as it is and decides nothing.
type EgressHandler interface {
	// ServeEgress owns conn and returns when it is done with it, at the latest
	// soon after ctx ended. conn is a net.Conn too, with deadlines, and has
	// CloseWrite() error for ending one direction.
	ServeEgress(ctx context.Context, claim EgressClaim, conn io.ReadWriteCloser)
}

// EgressClaim is what guestd says of who connected; a hint for the screen, never for a decision.
type EgressClaim struct {
	Session, Step, Exec string
	Pid                 int
	Argv                []string
	Browser             bool
}

var (
	// ErrGone: the channel is lost. Dial again; executions can be attached to.
	ErrGone = errors.New("the connection to the machine is gone")
	// ErrNoExec: guestd's journal has no such execution; its outcome is unknown.
	ErrNoExec = errors.New("the machine knows no such execution")
	// ErrNotFound: no such file.
	ErrNotFound = errors.New("no such file")
	// ErrConflict: the file is not what IfMatch said. Read it again.
	ErrConflict = errors.New("the file changed in the meantime")
	// ErrRefused: the path leaves the allowed folders or is not a plain file.
	ErrRefused = errors.New("the path is refused")
	// ErrOlder: the guestd in there is older than the call. It is replaced when the machine starts.
	ErrOlder = errors.New("the machine runs an older part of Glasshouse that cannot do this; stop and start the machine")
	// ErrTooLarge: past a size limit.
	ErrTooLarge = errors.New("too large")
)
