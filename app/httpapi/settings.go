package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"glasshouse/app/config"
	"glasshouse/backend/domain"
	"glasshouse/backend/policy"
)

// SettingsView is what a person can change of Glasshouse itself.
type SettingsView struct {
	Settings config.Settings   `json:"settings" doc:"what config.toml holds now; 0 and empty = the usual"`
	Usual    config.Settings   `json:"usual" doc:"what an unset one means, where that is not the driver's own"`
	Applies  map[string]string `json:"applies" doc:"when a change counts: now, new (machines made from then on) or restart (of the core)"`
	Waiting  []string          `json:"waiting" doc:"settings of the file that the core does not work with yet: it has to start again for them"`
	Paths    SettingsPaths     `json:"paths"`
	Problem  string            `json:"problem,omitempty" doc:"why config.toml cannot be read now; settings are then those in force"`
}

// SettingsPaths are the places on this computer.
type SettingsPaths struct {
	Data     string `json:"data"`
	Config   string `json:"config"`
	Settings string `json:"settings"`
	Policy   string `json:"policy"`
	Logs     string `json:"logs"`
	CoreLog  string `json:"core_log"`
	Cache    string `json:"cache"`
	Images   string `json:"images"`
	Trash    string `json:"trash"`
	Socket   string `json:"socket"`
}

// PolicyView is what decides, and where it is written.
type PolicyView struct {
	Version string             `json:"version" doc:"changes whenever a rule does"`
	Rules   []PolicyRule       `json:"rules" doc:"in force, all weighed together: the strictest that matches wins"`
	Files   []policy.RulesFile `json:"files" doc:"the files behind them, as they are on disk now"`
	Fault   string             `json:"fault,omitempty" doc:"why a file is not in force as it is; rules from before are, or everything but reading asks"`
}

// PolicyRule is one rule in words.
type PolicyRule struct {
	ID       string          `json:"id"`
	Tier     policy.Tier     `json:"tier" enum:"builtin,user,project"`
	Decision domain.Decision `json:"decision" enum:"allow,ask,deny"`
	Text     string          `json:"text"`
	Reason   string          `json:"reason,omitempty"`
	Hosts    []string        `json:"hosts,omitempty" doc:"hosts it names; the egress gate keeps to it too"`
}

func (s *server) settings(api huma.API) {
	huma.Register(api, op("get-settings", http.MethodGet, "/v1/settings", "Settings, when they count, and the places on this computer"), func(ctx context.Context, _ *none) (*body[SettingsView], error) {
		v, err := s.Settings(ctx)
		return ok(v, err)
	})
	type putIn struct {
		Caller
		Body config.Settings
	}
	huma.Register(api, op("put-settings", http.MethodPut, "/v1/settings", "Write settings into config.toml; what can be is in force at once"), func(ctx context.Context, in *putIn) (*body[SettingsView], error) {
		if err := byPerson(in.Caller, "change settings"); err != nil {
			return nil, fail(err)
		}
		v, err := s.PutSettings(ctx, in.Body, in.actor())
		return ok(v, err)
	})
	type policyIn struct {
		Project string `query:"project_id" doc:"with this project's own rules too"`
	}
	policyOf := func(id string) (*body[PolicyView], error) {
		if id != "" {
			p, err := s.Projects.Get(domain.ProjectID(id))
			if err != nil {
				return nil, fail(err)
			}
			id = string(p.ID)
		}
		return ok(s.Policy(domain.ProjectID(id)), nil)
	}
	huma.Register(api, op("get-policy", http.MethodGet, "/v1/policy", "The rules in force and the files they come from, read now"), func(_ context.Context, in *policyIn) (*body[PolicyView], error) {
		return policyOf(in.Project)
	})
	huma.Register(api, op("reload-policy", http.MethodPost, "/v1/policy/reload", "Read all rules files again; a change of one is seen by itself too"), func(_ context.Context, in *policyIn) (*body[PolicyView], error) {
		if s.ReloadPolicy != nil {
			_ = s.ReloadPolicy() // what is wrong is in the answer, with the file it is in
		}
		return policyOf(in.Project)
	})
}

// byPerson refuses what only a person does.
func byPerson(c Caller, what string) error {
	if c.actor() == "agent" {
		return domain.E(domain.CodeDenied, "an agent may not "+what, "a person does that, in the window or with 'glasshouse'", nil)
	}
	return nil
}
