package core

import (
	"context"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"time"

	"glasshouse/app/config"
	"glasshouse/app/httpapi"
	"glasshouse/backend/domain"
	"glasshouse/backend/egress"
	"glasshouse/backend/event"
	"glasshouse/backend/policy"
	"glasshouse/vm"
)

// inForce are the settings the core works with now.
type inForce struct {
	mu  sync.Mutex // held while the file and the core change together
	now sync.RWMutex
	set config.Settings
}

func (f *inForce) get() config.Settings {
	f.now.RLock()
	defer f.now.RUnlock()
	return f.set
}

func (f *inForce) put(s config.Settings) {
	f.now.Lock()
	defer f.now.Unlock()
	f.set = s
}

func (c *Core) questionLife() time.Duration {
	return time.Duration(c.set.get().QuestionMinutes) * time.Minute
}
func (c *Core) hold() time.Duration { return time.Duration(c.set.get().HoldSeconds) * time.Second }

// resolve asks the server the settings name now.
func (c *Core) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if ask := resolver(c.set.get().Resolver); ask != nil {
		return ask(ctx, host)
	}
	return egress.SystemResolve(ctx, host)
}

// specOf is what new machines get.
func specOf(s config.Settings) vm.Spec {
	return vm.Spec{CPUs: s.CPUs, MemoryMiB: s.Memory, DiskGiB: s.Disk}
}

// changed names the settings in which two differ, in their order.
func changed(a, b config.Settings) []string {
	out := []string{}
	va, vb := reflect.ValueOf(a), reflect.ValueOf(b)
	for i := range va.NumField() {
		if !va.Field(i).Equal(vb.Field(i)) {
			out = append(out, va.Type().Field(i).Tag.Get("toml"))
		}
	}
	return out
}

// settings shows what config.toml holds now and what of it the core works with.
func (c *Core) settings(context.Context) (httpapi.SettingsView, error) {
	p := c.opt.Paths
	v := httpapi.SettingsView{Settings: c.set.get(), Usual: config.Settings{Machine: usualKind(), HoldSeconds: 300}, Applies: config.Applies, Waiting: []string{},
		Paths: httpapi.SettingsPaths{Data: p.Data, Config: p.Config, Settings: p.ConfigFile(), Policy: p.PolicyFile(), Logs: p.Logs(), CoreLog: filepath.Join(p.Logs(), "core.log"),
			Cache: p.Cache, Images: p.Images(), Trash: p.Trash(), Socket: p.Socket()}}
	file, err := p.Load()
	if err != nil {
		v.Problem = err.Error()
		return v, nil //nolint:nilerr // a file that cannot be read is an answer too
	}
	v.Waiting = changed(file, v.Settings)
	v.Settings = file
	return v, nil
}

// putSettings writes settings down and puts in force what can be while the core runs.
func (c *Core) putSettings(ctx context.Context, s config.Settings, by domain.Actor) (httpapi.SettingsView, error) {
	c.set.mu.Lock()
	defer c.set.mu.Unlock()
	before, err := c.opt.Paths.Load()
	if err != nil {
		return httpapi.SettingsView{}, err
	}
	// What runs on this computer is named by whoever can write its files, not by
	// whoever reaches the door; back to our own is always possible.
	if s.Limactl != before.Limactl && s.Limactl != "" {
		return httpapi.SettingsView{}, &domain.Error{Code: domain.CodeDenied, Pointer: "/limactl", What: "the program that runs the machines is not chosen from here",
			Hint: "write limactl = \"/path\" into " + c.opt.Paths.ConfigFile() + " with an editor"}
	}
	if err := c.opt.Paths.Save(s); err != nil {
		return httpapi.SettingsView{}, err
	}
	now := s
	now.Limactl = c.set.get().Limactl // the driver has it until the core starts again
	c.set.put(now)
	c.projects.SetDefaults(c.defaultKind(), specOf(now))
	if diff := changed(before, s); len(diff) > 0 {
		if err := c.record(ctx, event.New{Stream: event.HostStream, Origin: domain.OriginHost, Actor: by, Payload: &event.SettingsChanged{Settings: diff, By: by}}); err != nil {
			c.log.Warn("a change of the settings could not be recorded", "err", err)
		}
	}
	return c.settings(ctx)
}

// policyView is what decides for a project ("" = without one), read now.
func (c *Core) policyView(id domain.ProjectID) httpapi.PolicyView {
	r, err := c.rules.Rules(id)
	v := httpapi.PolicyView{Version: r.Version(), Files: c.rules.Files(id), Rules: []httpapi.PolicyRule{}}
	if err != nil {
		v.Fault = err.Error()
	}
	for _, rule := range r.List() {
		v.Rules = append(v.Rules, httpapi.PolicyRule{ID: rule.ID, Tier: rule.Tier(), Decision: rule.Decision, Text: rule.Text(), Reason: rule.Reason, Hosts: slices.Clone(rule.Host)})
	}
	return v
}

// hostRule is what the rules files say of a target; ok is false when they leave it
// to the person.
func (c *Core) hostRule(id domain.ProjectID, mode policy.Mode, t egress.Target) (egress.Rule, bool) {
	r, _ := c.rules.Rules(id) // with a fault too: what still holds is the stricter
	d := policy.DecideEgress(t.Host, t.Port, mode, r)
	if d.Decision == domain.Ask {
		return egress.Rule{}, false
	}
	return egress.Rule{Name: d.Rule, Text: d.Reason, Decision: d.Decision}, true
}
