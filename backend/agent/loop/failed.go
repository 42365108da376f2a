package loop

import (
	"errors"
	"fmt"

	"glasshouse/backend/domain"
	"glasshouse/backend/model"
)

// notOpened words a model that cannot be asked at all.
func notOpened(name string, err error) error {
	var known *domain.Error
	if errors.As(err, &known) {
		return err // it says what to do
	}
	if name == "" {
		name = "that is the usual one"
	}
	return domain.E(domain.CodeUnavailable, "The model "+name+" cannot be asked", "see its settings, or choose another model", err)
}

// failed words for a person why a model gave no answer: what happened, why, what to do.
func failed(cfg model.Config, err error) error {
	var e *model.Error
	if !errors.As(err, &e) {
		return err
	}
	where := cfg.BaseURL
	if where == "" {
		where = "its provider"
	}
	say := func(code domain.ErrorCode, what, hint string) error {
		said := clean(e.Message)
		if said == "" && e.Err != nil {
			said = clean(e.Err.Error())
		}
		if e.Status != 0 {
			what += fmt.Sprintf(" (HTTP %d)", e.Status)
		}
		if said != "" {
			what += ": " + short(said, 2000)
		}
		if e.RequestID != "" {
			hint += "; the request's id is " + line(e.RequestID, 100)
		}
		return domain.E(code, what, hint, nil)
	}
	again := "go on with the turn later, or choose another model"
	switch e.Kind {
	case model.ErrAuth:
		hint := fmt.Sprintf("put the key in the keychain with 'glasshouse model key %s'", cfg.Name)
		if cfg.KeyEnv != "" {
			hint += fmt.Sprintf(", or set %s before Glasshouse starts", cfg.KeyEnv)
		}
		return say(domain.CodeDenied, fmt.Sprintf("The model %s does not take the key", cfg.Name), hint+"; then go on with the turn")
	case model.ErrQuota:
		return say(domain.CodeDenied, fmt.Sprintf("The account of the model %s has nothing left", cfg.Name), "add to it at the provider, or choose another model; then go on with the turn")
	case model.ErrNotFound:
		if e.Status < 400 { // a certificate, TLS or a redirect: no server said that there is none
			return say(domain.CodeUnavailable, fmt.Sprintf("The model %s was not reached at %s", cfg.Name, where), fmt.Sprintf("mend that, or the address in the settings of %s; then go on with the turn", cfg.Name))
		}
		return say(domain.CodeNotFound, fmt.Sprintf("There is no model %q at %s", cfg.Model, where), fmt.Sprintf("mend the settings of %s (its server's name for the model, and its address)", cfg.Name))
	case model.ErrTooLong:
		return say(domain.CodeTooLarge, fmt.Sprintf("The conversation is too long for the model %s, also after it was made shorter", cfg.Name),
			fmt.Sprintf("set 'context' of %s in its settings to what its server holds, or choose a model with a larger context", cfg.Name))
	case model.ErrInvalid:
		return say(domain.CodeInvalid, fmt.Sprintf("The server of the model %s does not take the request", cfg.Name), "see whether its settings (wire format, effort, most output) fit the model, or choose another one")
	case model.ErrRate:
		return say(domain.CodeUnavailable, fmt.Sprintf("The model %s was asked too often", cfg.Name), again)
	case model.ErrBusy:
		return say(domain.CodeUnavailable, fmt.Sprintf("The server of the model %s is overloaded", cfg.Name), again)
	case model.ErrServer:
		return say(domain.CodeUnavailable, fmt.Sprintf("The server of the model %s failed", cfg.Name), again)
	case model.ErrNetwork:
		return say(domain.CodeUnavailable, fmt.Sprintf("The model %s was not reached at %s", cfg.Name, where), "see whether its server runs and the network is there; then go on with the turn")
	case model.ErrTimeout:
		return say(domain.CodeUnavailable, fmt.Sprintf("The model %s said nothing for too long", cfg.Name), again)
	case model.ErrProtocol:
		return say(domain.CodeUnavailable, fmt.Sprintf("What the server of the model %s sent is not %s", cfg.Name, cfg.Format), "see whether its address and wire format in the settings belong together")
	}
	return say(domain.CodeUnavailable, fmt.Sprintf("The model %s gave no answer", cfg.Name), again)
}
