package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"glasshouse/app/httpapi"
	"glasshouse/backend/model"
)

// models is what is set up.
type models struct{ httpapi.ModelsView }

func (c *Client) models(ctx context.Context) (m models, err error) {
	return m, c.get(ctx, at{"models"}, nil, &m)
}

func (m models) named(name string) (modelRow, bool) {
	for _, r := range m.Models {
		if r.Name == name {
			return modelRow{r}, true
		}
	}
	return modelRow{}, false
}

// usual is the model that is meant where none is named, if there is one.
func (m models) usual() string {
	if m.Default == "" && len(m.Models) == 1 {
		return m.Models[0].Name
	}
	return m.Default
}

// modelRow is one of them.
type modelRow struct{ httpapi.ModelView }

func modelPath(name string, rest ...string) at { return append(at{"models", name}, rest...) }

// none says that a model is not set up. It does not repeat the name: it may be a key
// that was given in the wrong place.
func (m models) none() error {
	if len(m.Models) == 0 {
		return fmt.Errorf("no model is set up\n  set one up with 'glasshouse model add'; its --help shows how")
	}
	var names []string
	for _, r := range m.Models {
		names = append(names, one(r.Name))
	}
	return fmt.Errorf("there is no model of that name\n  there are: %s", strings.Join(names, ", "))
}

const modelHelp = `The models that can work in sessions: a provider's, or one of a server of your own that
speaks OpenAI's or Anthropic's format.

  glasshouse model add claude --format anthropic --model claude-sonnet-4-5
  glasshouse model key claude                    asks for the key and keeps it in the keychain
  glasshouse model add local --format openai-chat --model qwen3:8b --base-url http://127.0.0.1:11434/v1
  glasshouse model try local                     one short question

Keys are kept in the system's keychain, or stay in an environment variable of the core
that --key-env names. None is ever put into a file, the log or a machine.`

func (e *env) modelCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "model", Short: "Models that can work in sessions, and their keys", Long: modelHelp}
	cmd.AddCommand(e.modelListCmd(), e.modelAddCmd(), e.modelEditCmd(), e.modelRemoveCmd(), e.modelDefaultCmd(), e.modelKeyCmd(), e.modelTryCmd())
	return cmd
}

func (e *env) modelListCmd() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the models; the default one has a star", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := e.client(cmd.Context())
			if err != nil {
				return err
			}
			m, err := c.models(cmd.Context())
			if err != nil {
				return err
			}
			if len(m.Models) == 0 {
				e.note("no model is set up; 'glasshouse model add --help' shows how")
			}
			if m.Problem != "" {
				e.note("%s cannot be read, so what it held before counts: %s", m.File, one(m.Problem))
			} else if m.usual() == "" && len(m.Models) > 0 {
				e.note("none is the default one; choose with 'glasshouse model default NAME'")
			}
			return e.print(m, func(w io.Writer) {
				for _, v := range m.Models {
					r, star := modelRow{v}, " "
					if r.Name == m.usual() {
						star = "*"
					}
					at := r.BaseURL
					if at == "" {
						at = "its provider"
					}
					fmt.Fprintf(w, "%s %s\t%s\t%s\t%s\t%s\t%s\n", star, one(r.Name), one(r.Model), one(string(r.Format)), one(at), r.keyText(), priceText(r.Price))
				}
				for _, r := range m.Models {
					if r.Problem != "" {
						fmt.Fprintf(w, "! %s: %s\n", one(r.Name), one(r.Problem))
					}
				}
			})
		},
	}
}

func (r modelRow) keyText() string {
	switch r.Key {
	case "keychain":
		return "key in the keychain"
	case "environment":
		return "key in " + one(r.KeyEnv)
	case "missing":
		if r.KeyEnv == "" {
			return "key missing"
		}
		return "key missing: " + one(r.KeyEnv) + " is not set"
	case "none":
		return "no key"
	}
	return "key: " + one(r.Key)
}

func priceText(p *model.Price) string {
	if p == nil {
		return "price not known"
	}
	n := func(v float64) string { return "$" + strconv.FormatFloat(v, 'f', -1, 64) }
	return n(p.Input) + " in, " + n(p.Output) + " out per million tokens"
}

// modelFlags are a model's settings as flags.
type modelFlags struct {
	format, model, baseURL, keyEnv, effort string
	context, maxOutput                     int
	textOnly, noPrice                      bool
	price                                  model.Price
}

func (o *modelFlags) add(f *pflag.FlagSet) {
	f.StringVar(&o.format, "format", "", "what its server speaks: anthropic, openai-responses or openai-chat (Ollama, llama.cpp, vLLM and others)")
	f.StringVar(&o.model, "model", "", "the server's name for the model")
	f.StringVar(&o.baseURL, "base-url", "", "address of a server such as http://127.0.0.1:11434/v1; none = the provider's own")
	f.StringVar(&o.keyEnv, "key-env", "", "environment variable of the core that holds the key; a key in the keychain counts first")
	f.Var(wholeFlag[int]{&o.context}, "context", "tokens that a question and its answer may have together; 0 = 128000")
	f.Var(wholeFlag[int]{&o.maxOutput}, "max-output", "most tokens of an answer; 0 = 8192")
	f.StringVar(&o.effort, "effort", "", "how much it thinks: low, medium or high; none = the server's usual")
	f.BoolVar(&o.textOnly, "text-only", false, "it cannot see pictures")
	f.Var((*priceFlag)(&o.price.Input), "price-input", "US dollars per million tokens that it reads")
	f.Var((*priceFlag)(&o.price.Output), "price-output", "US dollars per million tokens that it writes")
	f.Var((*priceFlag)(&o.price.CacheRead), "price-cache-read", "the same for tokens read from the server's cache; 0 = as --price-input")
	f.Var((*priceFlag)(&o.price.CacheWrite), "price-cache-write", "the same for tokens put into it; 0 = as --price-input")
}

// apply sets what was given on the command line and leaves the rest.
func (o *modelFlags) apply(c *model.Config, f *pflag.FlagSet) error {
	set := map[string]func(){
		"format": func() { c.Format = model.Format(o.format) }, "model": func() { c.Model = o.model }, "base-url": func() { c.BaseURL = o.baseURL },
		"key-env": func() { c.KeyEnv = o.keyEnv }, "context": func() { c.Context = o.context }, "max-output": func() { c.MaxOutput = o.maxOutput },
		"effort": func() { c.Effort = o.effort }, "text-only": func() { c.TextOnly = o.textOnly },
	}
	price := map[string]func(p *model.Price){
		"price-input": func(p *model.Price) { p.Input = o.price.Input }, "price-output": func(p *model.Price) { p.Output = o.price.Output },
		"price-cache-read": func(p *model.Price) { p.CacheRead = o.price.CacheRead }, "price-cache-write": func(p *model.Price) { p.CacheWrite = o.price.CacheWrite },
	}
	had := c.Price
	if had != nil {
		p := *had
		c.Price = &p
	}
	f.Visit(func(fl *pflag.Flag) {
		if s := set[fl.Name]; s != nil {
			s()
		}
		if s := price[fl.Name]; s != nil {
			if c.Price == nil {
				c.Price = &model.Price{}
			}
			s(c.Price)
		}
	})
	switch {
	case o.noPrice && f.Changed("price-input"):
		return usage("--no-price takes the price away; leave out the other")
	case o.noPrice:
		c.Price = nil
	case c.Price != nil && had == nil && !(f.Changed("price-input") && f.Changed("price-output")):
		return usage("a price is given with both --price-input and --price-output")
	}
	return nil
}

func (e *env) modelAddCmd() *cobra.Command {
	var o modelFlags
	cmd := &cobra.Command{
		Use: "add NAME --format FORMAT --model MODEL", Short: "Set a model up; NAME is how you call it", Args: cobra.ExactArgs(1),
		Long: modelHelp,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.format == "" || o.model == "" {
				return usage("--format and --model are needed")
			}
			conf := model.Config{Name: args[0]}
			if err := o.apply(&conf, cmd.Flags()); err != nil {
				return err
			}
			ctx := cmd.Context()
			c, err := e.client(ctx)
			if err != nil {
				return err
			}
			m, err := c.models(ctx)
			if err != nil {
				return err
			}
			if _, there := m.named(conf.Name); there {
				return fmt.Errorf("there is a model %s already\n  change it with 'glasshouse model edit %s'", one(conf.Name), one(conf.Name))
			}
			if err := c.call(ctx, "PUT", modelPath(conf.Name), nil, conf, &m); err != nil {
				return err
			}
			return e.showModel(m, conf.Name)
		},
	}
	o.add(cmd.Flags())
	return cmd
}

// showModel says what a model is now, and what it lacks.
func (e *env) showModel(m models, name string) error {
	r, there := m.named(name)
	if !there {
		return m.none()
	}
	err := e.print(r.ModelView, func(w io.Writer) {
		text := fmt.Sprintf("%s: %s, %s; %s", one(r.Name), one(r.Model), r.keyText(), priceText(r.Price))
		if r.Name == m.usual() {
			text += "; the default model"
		}
		fmt.Fprintln(w, text)
	})
	switch {
	case r.Problem != "":
		e.note("it cannot be used yet: %s", one(r.Problem))
	case r.Key == "missing", r.Key == "none" && r.BaseURL == "":
		e.note("give its key with 'glasshouse model key %s'", one(name))
	case m.usual() == "":
		e.note("it is chosen by --model; 'glasshouse model default %s' makes it the one that works when none is named", one(name))
	default:
		e.note("try it with 'glasshouse model try %s'", one(name))
	}
	if r.Price == nil {
		e.note("its price is not known, so a session with --limit does not use it; --price-input and --price-output give one, 0 for a model of your own")
	}
	return err
}

func (e *env) modelEditCmd() *cobra.Command {
	var o modelFlags
	cmd := &cobra.Command{
		Use: "edit NAME", Short: "Change what a model is set up as; what is not given stays", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if cmd.Flags().NFlag() == 0 {
				return usage("give what should change, such as --model")
			}
			c, err := e.client(ctx)
			if err != nil {
				return err
			}
			m, err := c.models(ctx)
			if err != nil {
				return err
			}
			r, there := m.named(args[0])
			if !there {
				return m.none()
			}
			if err := o.apply(&r.Config, cmd.Flags()); err != nil {
				return err
			}
			if err := c.call(ctx, "PUT", modelPath(r.Name), nil, r.Config, &m); err != nil {
				return err
			}
			return e.showModel(m, r.Name)
		},
	}
	o.add(cmd.Flags())
	cmd.Flags().BoolVar(&o.noPrice, "no-price", false, "its price is not known")
	return cmd
}

func (e *env) modelRemoveCmd() *cobra.Command {
	return &cobra.Command{
		Use: "remove NAME", Short: "Forget a model and its key", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, m, r, err := e.oneModel(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if err := c.call(cmd.Context(), "DELETE", modelPath(r.Name), nil, nil, nil); err != nil {
				return err
			}
			if m.Default == r.Name && len(m.Models) > 2 {
				e.note("it was the default model; choose another with 'glasshouse model default NAME'")
			}
			return nil
		},
	}
}

func (e *env) modelDefaultCmd() *cobra.Command {
	return &cobra.Command{
		Use: "default NAME", Short: "Choose the model that works when none is named", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, _, r, err := e.oneModel(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.post(cmd.Context(), at{"default-model"}, nil, map[string]string{"name": r.Name}, nil)
		},
	}
}

// oneModel finds a model by its name.
func (e *env) oneModel(ctx context.Context, name string) (*Client, models, modelRow, error) {
	c, err := e.client(ctx)
	if err != nil {
		return nil, models{}, modelRow{}, err
	}
	m, err := c.models(ctx)
	if err != nil {
		return nil, m, modelRow{}, err
	}
	r, there := m.named(name)
	if !there {
		return nil, m, r, m.none()
	}
	return c, m, r, nil
}

func (e *env) modelTryCmd() *cobra.Command {
	return &cobra.Command{
		Use: "try NAME", Short: "Ask a model one short question", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			c, _, r, err := e.oneModel(ctx, args[0])
			if err != nil {
				return err
			}
			var a httpapi.ModelTry
			if err := c.post(ctx, modelPath(r.Name, "try"), nil, nil, &a); err != nil {
				return err
			}
			if !a.OK && !e.json {
				return fmt.Errorf("the model %s does not answer: %s\n  %s", one(r.Name), a.Error, or(a.Hint, tryHint(a.Kind, r)))
			}
			if err := e.print(a, func(w io.Writer) {
				fmt.Fprintf(w, "%s\n", safe(strings.TrimSpace(a.Text), true))
			}); err != nil {
				return err
			}
			if !a.OK {
				return exitCode(1)
			}
			text := fmt.Sprintf("%s in, %s out, %.1f s", count(a.Usage.Input+a.Usage.CacheRead+a.Usage.CacheWrite), count(a.Usage.Output), float64(a.TookMS)/1000)
			if r.Price != nil {
				text += ", " + cost(r.Price.Cost(a.Usage))
			}
			e.note("%s answers: %s; that counts in no session and no limit", one(r.Name), text)
			return nil
		},
	}
}

// tryHint says what to do about a model that does not answer.
func tryHint(kind model.ErrorKind, r modelRow) string {
	switch kind {
	case model.ErrAuth:
		return "give a key with 'glasshouse model key " + one(r.Name) + "'"
	case model.ErrQuota:
		return "look at the account's balance with the provider"
	case model.ErrNotFound:
		return "compare --model and --base-url with what its server says; 'glasshouse model edit " + one(r.Name) + "' changes them"
	case model.ErrNetwork, model.ErrTimeout:
		if r.BaseURL != "" {
			return "does a server run at " + one(r.BaseURL) + "?"
		}
		return "is this computer connected?"
	case model.ErrInvalid, model.ErrProtocol:
		return "is --format what its server speaks? 'glasshouse model edit " + one(r.Name) + " --format …' changes it"
	}
	return "try again a little later"
}
