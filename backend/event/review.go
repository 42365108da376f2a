package event

import "glasshouse/backend/domain"

func init() {
	reg[ReviewViewed]()
	reg[ReviewCommented]()
	reg[ReviewCommentEdited]()
	reg[ReviewCommentRemoved]()
	reg[ReviewCommentsSent]()
}

// What a person does in a review beside deciding.
type (
	// ReviewViewed marks a file's change as looked at, or takes the mark away. File names
	// the change by its path, modes and blobs: it is the same in every review that
	// shows the same change, so the mark holds there too.
	ReviewViewed struct {
		Review  domain.ReviewID `json:"review_id"`
		File    string          `json:"file"`
		Path    string          `json:"path"`
		OldBlob string          `json:"old_blob,omitempty"`
		NewBlob string          `json:"new_blob,omitempty"`
		Viewed  bool            `json:"viewed"`
	}
	// ReviewCommented: a comment, at first a draft that only the person sees. The quoted
	// line and those around it are the host's, from the objects of the review; by them
	// the comment is found again in a later review.
	ReviewCommented struct {
		Comment string          `json:"comment_id"`
		Review  domain.ReviewID `json:"review_id"`
		File    string          `json:"file"`
		Path    string          `json:"path"`
		Side    string          `json:"side,omitempty"` // "old" or "new"; empty: the file as a whole
		Line    int             `json:"line,omitempty"` // from 1; 0: the file as a whole
		Unit    string          `json:"unit,omitempty"`
		Text    string          `json:"text"`
		Blob    string          `json:"blob,omitempty"`
		Quoted  string          `json:"quoted,omitempty"`
		Before  []string        `json:"before,omitempty"`
		After   []string        `json:"after,omitempty"`
	}
	ReviewCommentEdited struct {
		Comment string          `json:"comment_id"`
		Review  domain.ReviewID `json:"review_id"`
		Text    string          `json:"text"`
	}
	ReviewCommentRemoved struct {
		Comment string          `json:"comment_id"`
		Review  domain.ReviewID `json:"review_id"`
	}
	// ReviewCommentsSent: the comments went to a session, in one message.
	ReviewCommentsSent struct {
		Review   domain.ReviewID  `json:"review_id"`
		Session  domain.SessionID `json:"to_session"`
		Comments []string         `json:"comments"`
		Rejected int              `json:"rejected,omitempty"` // changes that were named as rejected
	}
)

func (*ReviewViewed) EventType() Type         { return "review.viewed" }
func (*ReviewCommented) EventType() Type      { return "review.commented" }
func (*ReviewCommentEdited) EventType() Type  { return "review.comment_edited" }
func (*ReviewCommentRemoved) EventType() Type { return "review.comment_removed" }
func (*ReviewCommentsSent) EventType() Type   { return "review.comments_sent" }
