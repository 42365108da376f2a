package event

func init() {
	reg[DiskSpace]()
	reg[TrashEmptied]()
}

// Host stream.
type (
	// DiskSpace: what is free on the disk that holds Glasshouse's data and machines came
	// into another range. "low" warns; while it is "full", changing steps of agents are
	// stopped and refused.
	DiskSpace struct {
		State      string `json:"state" enum:"ok,low,full"`
		Dir        string `json:"dir" doc:"a folder on that disk"`
		FreeBytes  int64  `json:"free_bytes"`
		TotalBytes int64  `json:"total_bytes"`
		Text       string `json:"text" doc:"what it means and what to do, for a person"`
		Stopped    int    `json:"stopped,omitempty" doc:"how many steps were stopped for it"`
	}
	// TrashEmptied: a person had what was deleted removed for good.
	TrashEmptied struct {
		Entries    int   `json:"entries"`
		FreedBytes int64 `json:"freed_bytes"`
	}
)

func (*DiskSpace) EventType() Type    { return "disk.space" }
func (*TrashEmptied) EventType() Type { return "trash.emptied" }
