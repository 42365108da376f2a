package tool

import "glasshouse/backend/domain"

// Restore is the tool that puts the workspace back to a checkpoint. Its name stands
// here because agents must hear of such a step although it is not theirs.
const Restore = "restore"

// Restored is its answer.
type Restored struct {
	Checkpoint string `json:"checkpoint"` // what the workspace was put back to
	Before     string `json:"before"`     // what was there; restoring to it undoes this
	Files      int    `json:"files"`      // that differ between the two
	More       bool   `json:"more,omitempty"`
	// Repository is set where .git was destroyed: "made anew", or why it could not be.
	Repository string `json:"repository,omitempty"`
}

// RestoredText tells an agent that the files are no longer as it left them; title is
// that of the step, outcome how it ended.
func RestoredText(title string, outcome domain.Outcome) string {
	text := "The person put the files of the workspace back to an earlier state: " + title + "."
	if outcome != domain.OutcomeOK {
		text += " It did not go through to the end (" + string(outcome) + "), so that the files may be a mixture of both states."
	}
	return text + " What was read or written before may be gone; read a file again before you rely on it."
}
