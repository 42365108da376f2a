package event

import "glasshouse/backend/domain"

func init() {
	reg[SettingsChanged]()
	reg[ModelsChanged]()
}

// SettingsChanged: a person changed config.toml through the core. Settings are the
// names of those that changed.
type SettingsChanged struct {
	Settings []string     `json:"settings"`
	By       domain.Actor `json:"by"`
}

func (*SettingsChanged) EventType() Type { return "settings.changed" }

// ModelsChanged: a person changed models.toml, or a key, through the core. Names are
// those of the models; of a key nothing is told but that it is another.
type ModelsChanged struct {
	Names   []string     `json:"names"`
	Default string       `json:"default"` // from now on; "" = the only one
	By      domain.Actor `json:"by"`
}

func (*ModelsChanged) EventType() Type { return "models.changed" }
