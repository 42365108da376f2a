package core

import (
	"context"
	"fmt"
	"strings"
	"time"

	"glasshouse/app/httpapi"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/model"
	"glasshouse/backend/secret"
)

var _ httpapi.Models = (*models)(nil)

// listTime bounds how long a list waits for a keychain that asks the person first.
var listTime = 5 * time.Second

// List shows the models and where their keys are.
func (m *models) List(ctx context.Context) (httpapi.ModelsView, error) {
	all, err := m.load()
	v := httpapi.ModelsView{Default: all.Default, Models: []httpapi.ModelView{}, File: m.paths.ModelsFile()}
	if err != nil {
		v.Problem = err.Error()
	}
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	for _, c := range all.Models {
		key, from, err := m.key(ctx, c)
		if err == nil {
			err = safe(c, key)
		}
		x := httpapi.ModelView{Config: c, Key: from}
		if err != nil {
			x.Problem = err.Error()
		}
		v.Models = append(v.Models, x)
	}
	return v, nil
}

// changed tells the clients that a model did, and answers with all of them.
func (m *models) changed(ctx context.Context, by domain.Actor, names ...string) (httpapi.ModelsView, error) {
	all, _ := m.load()
	err := m.record(ctx, event.New{Stream: event.HostStream, Origin: domain.OriginHost, Actor: by, Payload: &event.ModelsChanged{Names: names, Default: all.Default, By: by}})
	if err != nil {
		m.log.Warn("a change of the models could not be recorded", "err", err)
	}
	return m.List(ctx)
}

// Put sets a model up or changes it.
func (m *models) Put(ctx context.Context, c model.Config, by domain.Actor) (httpapi.ModelsView, error) {
	m.change.Lock()
	defer m.change.Unlock()
	if err := m.paths.SaveModel(c); err != nil {
		return httpapi.ModelsView{}, err
	}
	return m.changed(ctx, by, c.Name)
}

// Delete forgets a model and its key.
func (m *models) Delete(ctx context.Context, name string, by domain.Actor) (httpapi.ModelsView, error) {
	m.change.Lock()
	defer m.change.Unlock()
	if err := m.there(name); err != nil {
		return httpapi.ModelsView{}, err
	}
	// The key first: one that stays would be used for the next model of this name.
	if err := m.store.Delete(ctx, m.account(name)); err != nil && domain.CodeOf(err) != domain.CodeNotFound && m.keptInChain(name) {
		return httpapi.ModelsView{}, err
	}
	m.forget(name)
	if err := m.paths.DeleteModel(name); err != nil {
		return httpapi.ModelsView{}, err
	}
	return m.changed(ctx, by, name)
}

// there refuses a name that no model of the file has.
func (m *models) there(name string) error {
	all, err := m.load()
	if err != nil {
		return err
	}
	if _, ok := all.Find(name); ok {
		return nil
	}
	if name == "" {
		return &domain.Error{Code: domain.CodeInvalid, Pointer: "/name", What: "no model is named", Hint: "name one of " + some(all.Names())}
	}
	_, err = m.pick(name)
	return err
}

func (m *models) keptInChain(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.inChain[name] != ""
}

// forget lets go of what is held of a model's key; the scrubber goes on knowing it.
func (m *models) forget(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.inChain, name)
	if o := m.clients[name]; o != nil {
		o.http.CloseIdleConnections()
		delete(m.clients, name)
	}
}

// SetDefault names the model that is meant where none is named.
func (m *models) SetDefault(ctx context.Context, name string, by domain.Actor) (httpapi.ModelsView, error) {
	m.change.Lock()
	defer m.change.Unlock()
	if name != "" {
		if err := m.there(name); err != nil {
			return httpapi.ModelsView{}, err
		}
	}
	if err := m.paths.SetDefaultModel(name); err != nil {
		return httpapi.ModelsView{}, err
	}
	if name == "" {
		return m.changed(ctx, by)
	}
	return m.changed(ctx, by, name)
}

// PutKey keeps a model's key in the keychain.
func (m *models) PutKey(ctx context.Context, name, key string, by domain.Actor) (httpapi.ModelsView, error) {
	m.change.Lock()
	defer m.change.Unlock()
	if err := m.there(name); err != nil {
		return httpapi.ModelsView{}, err
	}
	key = strings.TrimSpace(key) // what a copied line ends with
	if err := secret.Check(key); err != nil {
		return httpapi.ModelsView{}, err
	}
	if c, err := m.pick(name); !m.scrub.Learn("model "+name, key) && (err != nil || !c.Local()) {
		return httpapi.ModelsView{}, &domain.Error{Code: domain.CodeInvalid, Pointer: "/key", What: "that key is not kept: " + notHidden, Hint: "give the key as the provider shows it; a server that needs none is set up without"}
	}
	if err := m.store.Set(ctx, m.account(name), key); err != nil {
		return httpapi.ModelsView{}, err
	}
	m.forget(name)
	return m.changed(ctx, by, name)
}

// DeleteKey takes a model's key out of the keychain.
func (m *models) DeleteKey(ctx context.Context, name string, by domain.Actor) (httpapi.ModelsView, error) {
	m.change.Lock()
	defer m.change.Unlock()
	if err := m.there(name); err != nil {
		return httpapi.ModelsView{}, err
	}
	if err := m.store.Delete(ctx, m.account(name)); err != nil {
		if domain.CodeOf(err) == domain.CodeNotFound {
			err = domain.E(domain.CodeNotFound, fmt.Sprintf("%s holds no key of model %s", m.store.Name(), name), "", nil)
		}
		return httpapi.ModelsView{}, err
	}
	m.forget(name)
	return m.changed(ctx, by, name)
}

// doctor says what the models lack.
func (m *models) doctor(ctx context.Context) []httpapi.DoctorLine {
	v, _ := m.List(ctx)
	if v.Problem != "" {
		return []httpapi.DoctorLine{{Name: "models", Text: v.Problem, Fix: "mend " + v.File + " with an editor; it is read again by itself"}}
	}
	if len(v.Models) == 0 {
		return []httpapi.DoctorLine{{Name: "models", OK: true, Text: "none is set up: playbooks and your own commands work without"}}
	}
	text := fmt.Sprintf("%d set up", len(v.Models))
	if v.Default != "" {
		text += ", the default is " + v.Default
	}
	out := []httpapi.DoctorLine{{Name: "models", OK: true, Text: text}}
	for _, x := range v.Models {
		l := httpapi.DoctorLine{Name: "model " + x.Name, OK: x.Problem == "", Text: x.Model + ", key: " + x.Key}
		if !l.OK {
			l.Text = x.Problem
			l.Fix = fmt.Sprintf("'glasshouse model key %s', or 'glasshouse model edit %s'", x.Name, x.Name)
		}
		out = append(out, l)
	}
	return out
}
