package event

import (
	"encoding/json"

	"glasshouse/backend/domain"
)

// Registry lists every event type with a constructor of its payload.
var Registry = map[Type]func() Payload{}

func reg[T any, P interface {
	*T
	Payload
}]() {
	mk := func() Payload { return P(new(T)) }
	Registry[mk().EventType()] = mk
}

func init() {
	reg[CoreStarted]()
	reg[CoreStopped]()
	reg[LogRedacted]()
	reg[ProjectCreated]()
	reg[ProjectDeleted]()
	reg[ProjectImported]()
	reg[MachineState]()
	reg[MachineProgress]()
	reg[RuleAdded]()
	reg[RuleRemoved]()
	reg[SessionCreated]()
	reg[SessionState]()
	reg[TurnStarted]()
	reg[TurnEnded]()
	reg[Message]()
	reg[StepRequested]()
	reg[StepDecided]()
	reg[StepStarted]()
	reg[StepOutput]()
	reg[StepEnded]()
	reg[StepSealed]()
	reg[StepRefused]()
	reg[ApprovalRequested]()
	reg[ApprovalAnswered]()
	reg[ApprovalClosed]()
	reg[EgressOpened]()
	reg[EgressBlocked]()
	reg[EgressClosed]()
	reg[FilesTouched]()
	reg[CheckRan]()
	reg[ReviewOpened]()
	reg[ReviewDecided]()
	reg[PushStarted]()
	reg[PushEnded]()
	reg[MachineStats]()
}

// Host stream.
type (
	// CoreStarted: the core took the lock. Clean is false when the last core did not stop in order.
	CoreStarted struct {
		Version string `json:"version"`
		Pid     int    `json:"pid"`
		Clean   bool   `json:"clean"`
	}
	CoreStopped struct {
		Reason string `json:"reason"`
	}
	// LogRedacted: the payload of an earlier event was replaced. Replacement is the
	// sha256 of what stands there now.
	LogRedacted struct {
		Event       int64        `json:"event_id"`
		Replacement string       `json:"replacement_sha256"`
		Reason      string       `json:"reason"`
		By          domain.Actor `json:"by"`
	}
)

// Project stream.
type (
	ProjectCreated struct {
		Project domain.Project `json:"project"`
	}
	ProjectDeleted struct {
		Trash  string `json:"trash,omitempty"`
		Reason string `json:"reason,omitempty"` // why one that was never finished is gone
	}
	// ProjectImported: the source's objects are in the mirror and the workspace.
	ProjectImported struct {
		Branch     string   `json:"branch,omitempty"`
		Commit     string   `json:"commit,omitempty"` // empty: no commits
		Files      int      `json:"files"`
		Dirty      []string `json:"dirty,omitempty"`       // dirty files of the source that were left behind
		Overlaid   []string `json:"overlaid,omitempty"`    // dirty files that were brought along
		IgnoredOut int      `json:"ignored_out,omitempty"` // ignored files that stayed outside
		MayDiffer  []string `json:"may_differ,omitempty"`  // filtered files
		Remote     string   `json:"remote,omitempty"`      // the address it was fetched from, or the folder's own origin; never with credentials
		Ref        string   `json:"ref,omitempty"`         // the branch there, by its full name
	}
	// MachineState: State is one of vm.State.
	MachineState struct {
		Machine domain.MachineID `json:"machine_id"`
		Kind    string           `json:"kind"`
		State   string           `json:"state"`
		Problem string           `json:"problem,omitempty"`
		BootID  string           `json:"boot_id,omitempty"`
	}
	// MachineProgress is transient. It is told at every change and again every two
	// seconds while the work goes on. A project's ends with its project.imported,
	// project.deleted or machine.state; the host's (an image without a machine) with the phase "done".
	MachineProgress struct {
		Machine domain.MachineID `json:"machine_id"`
		Phase   string           `json:"phase"` // source, fetch, machine, image, disk, boot, connect, workspace, …
		Text    string           `json:"text"`
		Done    int64            `json:"done,omitempty"`
		Total   int64            `json:"total,omitempty"`
		Unit    string           `json:"unit,omitempty"`  // what Done and Total count: bytes, objects
		Bytes   int64            `json:"bytes,omitempty"` // of a fetch: what came by now
		Work    string           `json:"work,omitempty"`  // what is being done: create, start, image
		Since   int64            `json:"since,omitempty"` // Unix ms: when the work began
		// PhaseSince is when this phase of it began.
		PhaseSince int64 `json:"phase_since,omitempty"`
	}
	// MachineStats is transient.
	MachineStats struct {
		CPUPercent   float64 `json:"cpu_percent"`
		MemUsedKiB   int64   `json:"mem_used_kib"`
		MemTotalKiB  int64   `json:"mem_total_kib"`
		DiskUsedKiB  int64   `json:"disk_used_kib"`
		DiskTotalKiB int64   `json:"disk_total_kib"`
		Procs        int     `json:"procs"`
		Load         float64 `json:"load"` // processes that want to run, over the last minute
	}
	// RuleAdded: an egress rule or a policy grant came to be.
	RuleAdded struct {
		ID           string            `json:"id"`
		Kind         string            `json:"kind"`  // "egress" or "tool"
		Scope        string            `json:"scope"` // "session" or "project"
		Host         string            `json:"host,omitempty"`
		Port         int               `json:"port,omitempty"`
		Decision     domain.Decision   `json:"decision"`
		Text         string            `json:"text"`            // the exact rule in words
		Match        string            `json:"match,omitempty"` // kind "tool": the exact key that is matched
		ExpiresAt    int64             `json:"expires_at,omitempty"`
		By           domain.Actor      `json:"by,omitempty"`
		FromApproval domain.ApprovalID `json:"from_approval,omitempty"`
	}
	RuleRemoved struct {
		ID string `json:"id"`
	}
)

// Session stream.
type (
	SessionCreated struct {
		Session domain.Session `json:"session"`
		Mode    string         `json:"mode,omitempty"` // policy mode; empty = auto
		Model   string         `json:"model,omitempty"`
		Checks  []Check        `json:"checks,omitempty"`
		// LimitNanos and LimitTokens as in SessionChanged.
		LimitNanos  int64 `json:"limit_nanos,omitempty"`
		LimitTokens int64 `json:"limit_tokens,omitempty"`
	}
	// Check is a declared command whose success says whether a turn's result is
	// right. It succeeds when its exit code is Exit and its output holds Has.
	Check struct {
		Name      string   `json:"name"`
		Argv      []string `json:"argv,omitempty"`
		Code      string   `json:"code,omitempty"` // bash, when Argv is empty
		Exit      int      `json:"exit,omitempty"`
		Has       string   `json:"has,omitempty"`
		TimeoutMS int64    `json:"timeout_ms,omitempty"`
	}
	SessionState struct {
		State  domain.SessionState `json:"state"`
		Reason string              `json:"reason,omitempty"`
	}
	TurnStarted struct {
		Turn   domain.TurnID `json:"turn_id"`
		Prompt string        `json:"prompt,omitempty"`
		Agent  string        `json:"agent,omitempty"`
		// GoOn: the agent goes on where the last turn ended, without a new prompt.
		GoOn bool `json:"go_on,omitempty"`
	}
	// TurnEnded: Result is "ok" (every declared check succeeded), "unchecked" (none is
	// declared), "failed", "stopped" (a limit was reached), "cancelled" or "interrupted".
	TurnEnded struct {
		Turn   domain.TurnID `json:"turn_id"`
		Result string        `json:"result"`
		Reason string        `json:"reason,omitempty"`
	}
	Message struct {
		Turn domain.TurnID `json:"turn_id,omitempty"`
		Role string        `json:"role"` // "person" or "agent"
		Text string        `json:"text"`
	}
	// StepRequested: a tool call passed its schema.
	StepRequested struct {
		Number   int             `json:"number"`        // 1, 2, … in the session
		Key      string          `json:"key,omitempty"` // the caller's own name for the call
		Turn     domain.TurnID   `json:"turn_id,omitempty"`
		Tool     string          `json:"tool"`
		Title    string          `json:"title"` // one line, host-made from the arguments
		Args     json.RawMessage `json:"args"`
		ArgsBlob *Blob           `json:"args_blob,omitempty"` // when too large to be inline
		Reach    domain.Reach    `json:"reach"`
		Digest   string          `json:"digest"` // sha256 of what will run
	}
	StepDecided struct {
		Decision domain.Decision `json:"decision"`
		Rule     string          `json:"rule"`
		Reason   string          `json:"reason"`
		// WouldAllow says what would be allowed instead of what is denied.
		WouldAllow string `json:"would_allow,omitempty"`
	}
	StepStarted struct {
		Exec string `json:"exec,omitempty"` // execution id in the guest
	}
	// StepOutput is transient.
	StepOutput struct {
		Stderr bool   `json:"stderr,omitempty"`
		Offset int64  `json:"offset"`
		Text   string `json:"text"` // invalid UTF-8 replaced
	}
	// StepEnded: the tool answered. Result is the tool's own JSON answer.
	StepEnded struct {
		Outcome    domain.Outcome  `json:"outcome"`
		Error      string          `json:"error,omitempty"`
		ExitCode   *int            `json:"exit_code,omitempty"`
		Signal     string          `json:"signal,omitempty"`
		DurationMS int64           `json:"duration_ms"`
		CPUMS      int64           `json:"cpu_ms,omitempty"`
		MaxRSSKiB  int64           `json:"max_rss_kib,omitempty"`
		Stdout     *OutputStream   `json:"stdout,omitempty"`
		Stderr     *OutputStream   `json:"stderr,omitempty"`
		Background []string        `json:"background,omitempty"` // still running: "pid argv"
		Result     json.RawMessage `json:"result,omitempty"`
		Artefacts  []Blob          `json:"artefacts,omitempty"`
		Source     string          `json:"source,omitempty"` // "journal" when learnt after a crash
	}
	// OutputStream is one output stream: the head and tail as text, and what came first,
	// up to a limit, as a blob. Dropped counts the bytes that are not in the blob.
	OutputStream struct {
		Total   int64  `json:"total"`
		Dropped int64  `json:"dropped,omitempty"`
		Head    string `json:"head,omitempty"`
		Tail    string `json:"tail,omitempty"`
		Binary  bool   `json:"binary,omitempty"`
		Blob    *Blob  `json:"blob,omitempty"`
	}
	// StepSealed: the checkpoint after the step is safe on the guest's disk.
	StepSealed struct {
		Commit      string       `json:"commit"`
		Base        string       `json:"base,omitempty"` // the checkpoint that Changes are against; empty: the first one, or the same
		Tree        string       `json:"tree"`
		Same        bool         `json:"same,omitempty"`
		Changes     []FileChange `json:"changes,omitempty"`
		More        bool         `json:"more,omitempty"`
		Ignored     int          `json:"ignored,omitempty"`
		NotCaptured []string     `json:"not_captured,omitempty"`
		Sum         string       `json:"sum,omitempty"`
		Failed      string       `json:"failed,omitempty"` // why no checkpoint could be taken
	}
	FileChange struct {
		Path    string `json:"path"`
		OldPath string `json:"old_path,omitempty"`
		Op      string `json:"op"`
		OldMode uint32 `json:"old_mode,omitempty"`
		NewMode uint32 `json:"new_mode,omitempty"`
		Added   int    `json:"added"`
		Deleted int    `json:"deleted"`
		Binary  bool   `json:"binary,omitempty"`
	}
	// StepRefused ends a step that never ran: State is denied, cancelled or expired.
	StepRefused struct {
		State   domain.StepState `json:"state"`
		Reason  string           `json:"reason"`
		Allowed string           `json:"allowed,omitempty"` // what would be allowed instead
	}
	// ApprovalRequested: a question waits. What is shown is bound to Digest.
	ApprovalRequested struct {
		Approval  domain.ApprovalID `json:"approval_id"`
		Kind      string            `json:"kind"` // "step", "egress", "question", "push", "limit", "loop"
		Title     string            `json:"title"`
		Detail    []Field           `json:"detail,omitempty"` // shown whole, in monospace
		Digest    string            `json:"digest"`
		Choices   []Choice          `json:"choices"`
		FreeText  bool              `json:"free_text,omitempty"` // a text may come with the answer
		ExpiresAt int64             `json:"expires_at,omitempty"`
		Host      string            `json:"host,omitempty"`
		Port      int               `json:"port,omitempty"`
	}
	Field struct {
		Name   string        `json:"name"`
		Value  string        `json:"value"`
		Origin domain.Origin `json:"origin,omitempty"`
	}
	// Choice is one answer the core accepts.
	Choice struct {
		ID     string `json:"id"` // "once", "session", "project", "deny", or a question's option
		Label  string `json:"label"`
		Covers string `json:"covers,omitempty"` // the exact rule it would save
		Grant  *Grant `json:"grant,omitempty"`  // the same for programs; nil = nothing is saved
	}
	// Grant is the rule that a choice saves when a person picks it. It is recorded
	// with the question, so that what is saved is what was shown, also after a restart.
	Grant struct {
		Kind     string          `json:"kind"`  // "egress" or "tool"
		Scope    string          `json:"scope"` // "session" or "project"
		Decision domain.Decision `json:"decision"`
		Host     string          `json:"host,omitempty"`
		Port     int             `json:"port,omitempty"`
		Match    string          `json:"match,omitempty"`
		TTLMS    int64           `json:"ttl_ms,omitempty"` // 0 = no expiry of its own
	}
	ApprovalAnswered struct {
		Approval domain.ApprovalID `json:"approval_id"`
		Choice   string            `json:"choice"`
		Text     string            `json:"text,omitempty"`
		By       domain.Actor      `json:"by"` // "person", "demo", …
	}
	// ApprovalClosed: ended without an answer. Why is "expired", "cancelled" or "superseded".
	ApprovalClosed struct {
		Approval domain.ApprovalID `json:"approval_id"`
		Why      string            `json:"why"`
	}
	// EgressOpened: the gate let a connection through.
	EgressOpened struct {
		Conn   string `json:"conn_id"`
		Host   string `json:"host"`
		Port   int    `json:"port"`
		Addr   string `json:"addr"` // the address that was dialled
		Method string `json:"method,omitempty"`
		Rule   string `json:"rule"`
		Claim  string `json:"claim,omitempty"` // who asked, as the guest says
	}
	EgressBlocked struct {
		Host     string            `json:"host"`
		Port     int               `json:"port"`
		Method   string            `json:"method,omitempty"`
		Reason   string            `json:"reason"`
		Rule     string            `json:"rule,omitempty"`
		Claim    string            `json:"claim,omitempty"`
		Approval domain.ApprovalID `json:"approval_id,omitempty"`
	}
	EgressClosed struct {
		Conn       string `json:"conn_id"`
		BytesOut   int64  `json:"bytes_out"`
		BytesIn    int64  `json:"bytes_in"`
		DurationMS int64  `json:"duration_ms"`
		Error      string `json:"error,omitempty"`
	}
	// FilesTouched is transient: the watcher's view while a step runs.
	FilesTouched struct {
		Changes  []FileChange `json:"changes"`
		Degraded bool         `json:"degraded,omitempty"`
		Resync   bool         `json:"resync,omitempty"`  // changes may have been missed before it
		Dropped  int          `json:"dropped,omitempty"` // paths that were touched and are not listed
	}
	// CheckRan: a declared check's verdict on a turn.
	CheckRan struct {
		Name   string `json:"name"`
		OK     bool   `json:"ok"`
		Reason string `json:"reason,omitempty"`
	}
	// ReviewOpened: a review of fixed objects in the project's mirror.
	ReviewOpened struct {
		Review    domain.ReviewID `json:"review_id"`
		Base      string          `json:"base"`
		Candidate string          `json:"candidate"`
		Files     int             `json:"files"`
		Units     int             `json:"units"`            // decisions to make
		Remote    string          `json:"remote,omitempty"` // where it is meant to go; credentials cut out
		Ref       string          `json:"ref,omitempty"`
		Expected  string          `json:"expected,omitempty"` // what the ref held then; empty: it did not exist
	}
	ReviewDecided struct {
		Review   domain.ReviewID `json:"review_id"`
		File     string          `json:"file"`           // the file's id in the review; empty: everything
		Path     string          `json:"path,omitempty"` // for people
		Unit     string          `json:"unit,omitempty"` // a hunk, "file", "mode", …; empty: all of the file
		Decision string          `json:"decision"`       // "accept", "reject", "undecided"
	}
	PushStarted struct {
		Review   domain.ReviewID `json:"review_id"`
		Remote   string          `json:"remote"` // credentials cut out
		Ref      string          `json:"ref"`
		Expected string          `json:"expected"` // old value; empty = must not exist
		Commit   string          `json:"commit"`
		Tree     string          `json:"tree"`
	}
	PushEnded struct {
		Review domain.ReviewID `json:"review_id"`
		OK     bool            `json:"ok"`
		Reason string          `json:"reason,omitempty"`
		Output string          `json:"output,omitempty"`
	}
)

func (*CoreStarted) EventType() Type       { return "core.started" }
func (*CoreStopped) EventType() Type       { return "core.stopped" }
func (*LogRedacted) EventType() Type       { return "log.redacted" }
func (*ProjectCreated) EventType() Type    { return "project.created" }
func (*ProjectDeleted) EventType() Type    { return "project.deleted" }
func (*ProjectImported) EventType() Type   { return "project.imported" }
func (*MachineState) EventType() Type      { return "machine.state" }
func (*MachineProgress) EventType() Type   { return "machine.progress" }
func (*MachineStats) EventType() Type      { return "machine.stats" }
func (*RuleAdded) EventType() Type         { return "rule.added" }
func (*RuleRemoved) EventType() Type       { return "rule.removed" }
func (*SessionCreated) EventType() Type    { return "session.created" }
func (*SessionState) EventType() Type      { return "session.state" }
func (*TurnStarted) EventType() Type       { return "turn.started" }
func (*TurnEnded) EventType() Type         { return "turn.ended" }
func (*Message) EventType() Type           { return "message" }
func (*StepRequested) EventType() Type     { return "step.requested" }
func (*StepDecided) EventType() Type       { return "step.decided" }
func (*StepStarted) EventType() Type       { return "step.started" }
func (*StepOutput) EventType() Type        { return "step.output" }
func (*StepEnded) EventType() Type         { return "step.ended" }
func (*StepSealed) EventType() Type        { return "step.sealed" }
func (*StepRefused) EventType() Type       { return "step.refused" }
func (*ApprovalRequested) EventType() Type { return "approval.requested" }
func (*ApprovalAnswered) EventType() Type  { return "approval.answered" }
func (*ApprovalClosed) EventType() Type    { return "approval.closed" }
func (*EgressOpened) EventType() Type      { return "egress.opened" }
func (*EgressBlocked) EventType() Type     { return "egress.blocked" }
func (*EgressClosed) EventType() Type      { return "egress.closed" }
func (*FilesTouched) EventType() Type      { return "files.touched" }
func (*CheckRan) EventType() Type          { return "check.ran" }
func (*ReviewOpened) EventType() Type      { return "review.opened" }
func (*ReviewDecided) EventType() Type     { return "review.decided" }
func (*PushStarted) EventType() Type       { return "push.started" }
func (*PushEnded) EventType() Type         { return "push.ended" }

// Transient reports whether events of a type are never stored.
func Transient(t Type) bool {
	switch t {
	case "browser.changed", "machine.progress", "message.delta", "message.so_far", "machine.stats", "step.output", "files.touched":
		return true
	}
	return false
}
