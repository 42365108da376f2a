package event

import "glasshouse/backend/domain"

func init() {
	reg[ModelAnswered]()
	reg[ModelTold]()
	reg[ModelRetried]()
	reg[MessageDelta]()
	reg[MessageSoFar]()
	reg[PlanUpdated]()
	reg[ContextCompacted]()
	reg[SessionChanged]()
	reg[TurnResumed]()
}

// PurposeBroken is the purpose and the stop of an answer that broke off.
const PurposeBroken = "broken"

type (
	// ModelAnswered: a model's answer, whole. Together with ModelTold, ContextCompacted
	// and what the person said it is the conversation, which is folded from the log.
	ModelAnswered struct {
		Turn   domain.TurnID `json:"turn_id"`
		Answer string        `json:"answer_id"`
		Number int           `json:"number"` // 1, 2, … in the session
		// Saw is the newest event that the request was made from: what the person said
		// after it, the model did not know when it answered.
		Saw    int64  `json:"saw_event_id,omitempty"`
		Model  string `json:"model"` // as the person named it
		Served string `json:"served,omitempty"`
		// Purpose is empty for an answer of the conversation, "summary" for one about it,
		// PurposeBroken for one that broke off and did not go on: a part of its text, and
		// what all its attempts took, by our guess.
		Purpose   string      `json:"purpose,omitempty"`
		Parts     []ModelPart `json:"parts,omitempty"`
		PartsBlob *Blob       `json:"parts_blob,omitempty"` // all parts, when too large; Parts are then cut
		Stop      string      `json:"stop"`                 // "end", "calls", "length", "refused", "broken"
		Usage     ModelUsage  `json:"usage"`
		CostNanos int64       `json:"cost_nanos,omitempty"` // billionths of a US dollar
		Priced    bool        `json:"priced"`               // whether the cost is known
		// Lost is our guess of the tokens of attempts before this one that broke off in the
		// middle of an answer: servers bill them and count them nowhere. CostNanos holds
		// them, Usage does not.
		Lost    int64 `json:"lost_tokens,omitempty"`
		Context int64 `json:"context_used"` // tokens of request and answer
		// Shortened: what was asked held the conversation with long pieces cut, for it did not
		// fit otherwise. Context then says nothing about the size of the conversation.
		Shortened bool  `json:"shortened,omitempty"`
		Size      int64 `json:"context_size"` // most tokens there may be
		Attempts  int   `json:"attempts"`
		FirstMS   int64 `json:"first_ms"` // until the first piece came
		TookMS    int64 `json:"took_ms"`
	}
	// ModelPart is text, a thought or a call.
	ModelPart struct {
		Kind string `json:"kind"` // "text", "thought", "call"
		Text string `json:"text,omitempty"`
		// Of a call: Key is ours and unique, ID the server's. Args are as the model wrote
		// them, perhaps no JSON.
		Key  string `json:"key,omitempty"`
		ID   string `json:"id,omitempty"`
		Tool string `json:"tool,omitempty"`
		Args string `json:"args,omitempty"`
		// Opaque is the server's own form, base64, and From the format and model it is for.
		Opaque []byte `json:"opaque,omitempty"`
		From   string `json:"from,omitempty"`
	}
	ModelUsage struct {
		Input      int64 `json:"input"`
		CacheRead  int64 `json:"cache_read,omitempty"`
		CacheWrite int64 `json:"cache_write,omitempty"`
		Output     int64 `json:"output"`
		Reasoning  int64 `json:"reasoning,omitempty"`
	}
	// ModelTold: the results that a model got for the calls of an answer, in their order
	// and as it got them.
	ModelTold struct {
		Turn        domain.TurnID `json:"turn_id"`
		Answer      string        `json:"answer_id"`
		Results     []ToldResult  `json:"results,omitempty"`
		ResultsBlob *Blob         `json:"results_blob,omitempty"` // all of them, when too large; Results are then cut
	}
	ToldResult struct {
		Key    string        `json:"key"` // of the call
		Tool   string        `json:"tool"`
		Step   domain.StepID `json:"step_id,omitempty"` // empty: no step came of it
		Text   string        `json:"text"`
		Failed bool          `json:"failed,omitempty"`
		Images []Blob        `json:"images,omitempty"`
	}
	// ModelRetried: an attempt failed and another follows after a wait.
	ModelRetried struct {
		Turn    domain.TurnID `json:"turn_id"`
		Answer  string        `json:"answer_id"` // what was told of it by message.delta counts for nothing
		Attempt int           `json:"attempt"`   // the one that failed: 1, 2, …
		Kind    string        `json:"kind"`      // "rate", "network", …
		Status  int           `json:"status,omitempty"`
		Reason  string        `json:"reason"`
		WaitMS  int64         `json:"wait_ms"`
	}
	// MessageDelta is transient: a piece of an answer that is being written. Offset counts
	// the bytes of its kind before it in the same answer and attempt; the answer itself
	// is told by model.answered.
	MessageDelta struct {
		Turn    domain.TurnID `json:"turn_id"`
		Answer  string        `json:"answer_id"`
		Attempt int           `json:"attempt"`
		Kind    string        `json:"kind"` // "text", "thought", "call"
		Tool    string        `json:"tool,omitempty"`
		Offset  int64         `json:"offset"`
		Text    string        `json:"text"`
	}
	// MessageSoFar is transient: what was told by message.delta of an answer that is being
	// written, said again now and then for those who came later. Text and Thought are the
	// newest part of each; the ends are the offsets after them.
	MessageSoFar struct {
		Turn       domain.TurnID `json:"turn_id"`
		Answer     string        `json:"answer_id"`
		Attempt    int           `json:"attempt"`
		Text       string        `json:"text"`
		TextEnd    int64         `json:"text_end"`
		Thought    string        `json:"thought"`
		ThoughtEnd int64         `json:"thought_end"`
	}
	// PlanUpdated: what an agent means to do, whole.
	PlanUpdated struct {
		Turn  domain.TurnID `json:"turn_id"`
		Items []PlanItem    `json:"items"`
	}
	PlanItem struct {
		Text  string `json:"text"`
		State string `json:"state"` // "open", "doing", "done", "dropped"
	}
	// ContextCompacted: the conversation up to and with the event Through is replaced,
	// for the model, by Kept and Summary.
	ContextCompacted struct {
		Turn    domain.TurnID `json:"turn_id"`
		Through int64         `json:"through_event_id"`
		Kept    string        `json:"kept"`              // made by Glasshouse: what the person said and decided, open questions, files, plan
		Summary string        `json:"summary,omitempty"` // made by the model
		Before  int64         `json:"before_tokens"`
		After   int64         `json:"after_tokens"` // an estimate
		Reason  string        `json:"reason,omitempty"`
	}
	// SessionChanged: settings of a session that were changed while it lasts. What is
	// not set stays as it was.
	SessionChanged struct {
		Mode  *string `json:"mode,omitempty"`
		Model *string `json:"model,omitempty"`
		// LimitNanos is the most the session may cost, in billionths of a US dollar, and
		// LimitTokens the most tokens it may use; 0 = no limit.
		LimitNanos  *int64 `json:"limit_nanos,omitempty"`
		LimitTokens *int64 `json:"limit_tokens,omitempty"`
	}
	// TurnResumed: an agent goes on with a turn that an earlier core was working on.
	TurnResumed struct {
		Turn domain.TurnID `json:"turn_id"`
	}
)

func (*ModelAnswered) EventType() Type    { return "model.answered" }
func (*ModelTold) EventType() Type        { return "model.told" }
func (*ModelRetried) EventType() Type     { return "model.retried" }
func (*MessageDelta) EventType() Type     { return "message.delta" }
func (*MessageSoFar) EventType() Type     { return "message.so_far" }
func (*PlanUpdated) EventType() Type      { return "plan.updated" }
func (*ContextCompacted) EventType() Type { return "context.compacted" }
func (*SessionChanged) EventType() Type   { return "session.changed" }
func (*TurnResumed) EventType() Type      { return "turn.resumed" }

// Uncounted are the tokens that the cost of an answer holds by our guess and Usage does not:
// of attempts that broke off, and all of an answer whose server counts nothing.
func (m *ModelAnswered) Uncounted() int64 {
	if m.Usage == (ModelUsage{}) {
		return m.Lost + m.Context
	}
	return m.Lost
}
