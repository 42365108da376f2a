package event

import "glasshouse/backend/domain"

func init() { reg[SettingsChanged]() }

// SettingsChanged: a person changed config.toml through the core. Settings are the
// names of those that changed.
type SettingsChanged struct {
	Settings []string     `json:"settings"`
	By       domain.Actor `json:"by"`
}

func (*SettingsChanged) EventType() Type { return "settings.changed" }
