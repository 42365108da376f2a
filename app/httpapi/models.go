package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"glasshouse/backend/domain"
	"glasshouse/backend/model"
)

// Models are the models that a person set up. What changes one answers with all.
type Models interface {
	List(ctx context.Context) (ModelsView, error)
	Put(ctx context.Context, c model.Config, by domain.Actor) (ModelsView, error)
	Delete(ctx context.Context, name string, by domain.Actor) (ModelsView, error)
	SetDefault(ctx context.Context, name string, by domain.Actor) (ModelsView, error)
	// PutKey and DeleteKey change the keychain; a key is given out by no call.
	PutKey(ctx context.Context, name, key string, by domain.Actor) (ModelsView, error)
	DeleteKey(ctx context.Context, name string, by domain.Actor) (ModelsView, error)
	// Try asks a model one tiny question.
	Try(ctx context.Context, name string) (ModelTry, error)
}

// ModelsView is what models.toml holds.
type ModelsView struct {
	Default string      `json:"default" doc:"the model that is meant where none is named; empty = the only one"`
	Models  []ModelView `json:"models"`
	File    string      `json:"file" doc:"where they are written"`
	Problem string      `json:"problem,omitempty" doc:"why the file cannot be read now; models are then those from before"`
}

// ModelView is one model and where its key comes from. The key is never part of it.
type ModelView struct {
	model.Config
	Key     string `json:"key" enum:"keychain,environment,none,missing" doc:"where its key is; none = none is set up and none is needed; missing = one is needed"`
	Problem string `json:"problem,omitempty" doc:"why it cannot be used as it is"`
}

// ModelTry is what came of a tiny question to a model.
type ModelTry struct {
	OK     bool             `json:"ok"`
	Text   string           `json:"text,omitempty" doc:"what it answered"`
	Served string           `json:"served,omitempty" doc:"the model's name as the server gave it"`
	Usage  model.Usage      `json:"usage"`
	TookMS int64            `json:"took_ms"`
	Error  string           `json:"error,omitempty"`
	Kind   model.ErrorKind  `json:"kind,omitempty" doc:"what kind of failure: auth, quota, rate, busy, server, network, timeout, too_long, invalid, not_found, protocol"`
	Code   domain.ErrorCode `json:"code,omitempty" doc:"set when it was not asked at all"`
	Hint   string           `json:"hint,omitempty"`
}

// Bounds of the calls' bodies.
const (
	maxModelBody = 64 << 10
	maxKeyBody   = 16 << 10
)

// keyBody takes a key. It reads anything without an error, for what the library says
// of a body that does not fit could repeat a part of it.
type keyBody struct {
	key string
	bad bool
}

func (k *keyBody) UnmarshalJSON(data []byte) error {
	var in struct {
		Key *string `json:"key"`
	}
	k.bad = json.Unmarshal(data, &in) != nil || in.Key == nil
	if !k.bad {
		k.key = *in.Key
	}
	return nil
}

func (keyBody) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, Required: []string{"key"}, Properties: map[string]*huma.Schema{
		"key": {Type: huma.TypeString, Description: "the key as the provider shows it"},
	}}
}

// unstored is an answer that no cache keeps.
type unstored[T any] struct {
	CacheControl string `header:"Cache-Control"`
	Body         T
}

func noStore[T any](v T, err error) (*unstored[T], error) {
	if err != nil {
		return nil, fail(err)
	}
	return &unstored[T]{"no-store", v}, nil
}

func (s *server) models(api huma.API) {
	type Named struct {
		Caller
		Name string `path:"name" maxLength:"100" doc:"as the person named the model"`
	}
	change := func(id, method, path, summary string) huma.Operation {
		o := op(id, method, path, summary)
		o.MaxBodyBytes = maxModelBody
		return o
	}
	huma.Register(api, op("list-models", http.MethodGet, "/v1/models", "The models that are set up, and where their keys are"), func(ctx context.Context, _ *none) (*unstored[ModelsView], error) {
		return noStore(s.Models.List(ctx))
	})
	type putIn struct {
		Named
		Body modelBody
	}
	huma.Register(api, change("put-model", http.MethodPut, "/v1/models/{name}", "Set a model up, or change it"), func(ctx context.Context, in *putIn) (*unstored[ModelsView], error) {
		if err := byPerson(in.Caller, "set up models"); err != nil {
			return nil, fail(err)
		}
		c := in.Body.config(in.Name)
		if in.Body.Name != "" && in.Body.Name != in.Name {
			return nil, fail(&domain.Error{Code: domain.CodeInvalid, Pointer: "/name", What: fmt.Sprintf("the call is about model %.60q, its body about another", in.Name), Hint: "leave name out; a model gets another name by being set up anew"})
		}
		return noStore(s.Models.Put(ctx, c, in.actor()))
	})
	huma.Register(api, op("delete-model", http.MethodDelete, "/v1/models/{name}", "Forget a model and its key"), func(ctx context.Context, in *Named) (*unstored[ModelsView], error) {
		if err := byPerson(in.Caller, "delete models"); err != nil {
			return nil, fail(err)
		}
		return noStore(s.Models.Delete(ctx, in.Name, in.actor()))
	})
	type keyIn struct {
		Named
		Body keyBody
	}
	putKey := op("put-model-key", http.MethodPut, "/v1/models/{name}/key", "Put a model's key into the keychain; no call gives it out again")
	putKey.MaxBodyBytes, putKey.SkipValidateBody = maxKeyBody, true
	huma.Register(api, putKey, func(ctx context.Context, in *keyIn) (*unstored[ModelsView], error) {
		if err := byPerson(in.Caller, "set keys"); err != nil {
			return nil, fail(err)
		}
		if in.Body.bad {
			return nil, fail(&domain.Error{Code: domain.CodeInvalid, Pointer: "/key", What: "the body holds no key", Hint: `send {"key": "…"}`})
		}
		return noStore(s.Models.PutKey(ctx, in.Name, in.Body.key, in.actor()))
	})
	huma.Register(api, op("delete-model-key", http.MethodDelete, "/v1/models/{name}/key", "Take a model's key out of the keychain"), func(ctx context.Context, in *Named) (*unstored[ModelsView], error) {
		if err := byPerson(in.Caller, "delete keys"); err != nil {
			return nil, fail(err)
		}
		return noStore(s.Models.DeleteKey(ctx, in.Name, in.actor()))
	})
	type defaultIn struct {
		Caller
		Body struct {
			Name string `json:"name" maxLength:"100" doc:"empty = none: the only one is meant"`
		}
	}
	huma.Register(api, change("set-default-model", http.MethodPost, "/v1/default-model", "Say which model is meant where none is named"), func(ctx context.Context, in *defaultIn) (*unstored[ModelsView], error) {
		if err := byPerson(in.Caller, "choose the default model"); err != nil {
			return nil, fail(err)
		}
		return noStore(s.Models.SetDefault(ctx, in.Body.Name, in.actor()))
	})
	huma.Register(api, op("try-model", http.MethodPost, "/v1/models/{name}/try", "Ask a model one tiny question, to see whether it answers; it is recorded nowhere"), func(ctx context.Context, in *Named) (*unstored[ModelTry], error) {
		if err := byPerson(in.Caller, "try models"); err != nil {
			return nil, fail(err)
		}
		return noStore(s.Models.Try(ctx, in.Name))
	})
}

// modelBody is a model.Config whose name may be left out, for the path has it.
type modelBody struct {
	Name      string       `json:"name,omitempty" doc:"as in the path, or left out"`
	Format    model.Format `json:"format" enum:"openai-chat,openai-responses,anthropic" doc:"wire format"`
	Model     string       `json:"model" maxLength:"200" doc:"the server's name for the model"`
	BaseURL   string       `json:"base_url,omitempty" maxLength:"2000" doc:"address of a compatible server, such as http://127.0.0.1:11434/v1; empty = the provider's own"`
	KeyEnv    string       `json:"key_env,omitempty" maxLength:"100" doc:"environment variable with the key; a key in the keychain counts first"`
	Context   int          `json:"context,omitempty" doc:"tokens that request and answer may have together; 0 = 128000"`
	MaxOutput int          `json:"max_output,omitempty" doc:"most tokens of an answer; 0 = 8192"`
	Effort    string       `json:"effort,omitempty" enum:",low,medium,high" doc:"how much it thinks before it answers; empty = the server's usual"`
	TextOnly  bool         `json:"text_only,omitempty" doc:"it cannot see pictures"`
	Price     *model.Price `json:"price,omitempty" doc:"without one, costs are not known"`
}

func (b modelBody) config(name string) model.Config {
	return model.Config{Name: name, Format: b.Format, Model: b.Model, BaseURL: b.BaseURL, KeyEnv: b.KeyEnv, Context: b.Context, MaxOutput: b.MaxOutput, Effort: b.Effort, TextOnly: b.TextOnly, Price: b.Price}
}
