package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"glasshouse/app/httpapi"
	"glasshouse/backend/domain"
	"glasshouse/backend/event"
)

func (e *env) projectCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "project", Short: "Projects: a source, its machine, its sessions"}
	var in httpapi.NewProject
	create := &cobra.Command{
		Use: "create [FOLDER]", Short: "Bring a folder or repository into a machine of its own", Args: cobra.MaximumNArgs(1),
		Long: `Bring a folder or repository into a machine of its own. The folder is only read. What
git ignores stays outside; so does what is not committed, but for files named with --with.
An address (https://HOST/PATH, ssh://HOST/PATH, HOST:PATH or file:///PATH) is fetched with
your own git credentials; one that holds credentials itself is refused. Without a FOLDER
the workspace is empty.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && in.Name == "" {
				return usage("give a FOLDER, or --name for an empty workspace")
			}
			if len(args) == 1 {
				abs, err := sourcePath(args[0])
				if err != nil {
					return err
				}
				in.Source = abs
			}
			c, err := e.client(cmd.Context())
			if err != nil {
				return err
			}
			stop := e.showProgress(cmd.Context(), c)
			var p httpapi.ProjectView
			err = c.post(cmd.Context(), at{"projects"}, nil, in, &p)
			stop()
			if err != nil {
				return err
			}
			if err := e.print(p, func(w io.Writer) { fmt.Fprintf(w, "%s\t%s\t%s machine %s\n", p.ID, one(p.Name), p.Kind, p.Machine) }); err != nil {
				return err
			}
			if i := p.Imported; i != nil && in.Source != "" {
				e.note("%d files came in; %d ignored and %d changed but uncommitted stayed outside", i.Files, i.IgnoredOut, len(i.Dirty))
				if len(i.Dirty) > 0 {
					e.note("'glasshouse project show %s' names them; a new project takes them with --with FILE", p.ID)
				}
			}
			var same httpapi.ProjectView
			var re *remoteError
			if err := c.get(cmd.Context(), at{"projects", p.Name}, nil, &same); errors.As(err, &re) {
				e.note("there is another project %q: from now on name both by their ids", one(p.Name))
			}
			return nil
		},
	}
	create.Flags().StringVar(&in.Name, "name", "", "name (default: the folder's or the address's last part)")
	create.Flags().StringVar(&in.Branch, "branch", "", "branch of an address to begin at (default: the one its HEAD names)")
	create.Flags().BoolVar(&in.NextName, "next-name", false, "when the name is taken, put the next free number behind it")
	create.Flags().StringVar(&in.Kind, "machine", "", "lima (a VM) or local (a sandbox, not a VM); default: the setting, else local on Linux")
	create.Flags().StringSliceVar(&in.Overlay, "with", nil, "uncommitted files of the source to bring along; may be repeated")
	create.Flags().Var(wholeFlag[int]{&in.CPUs}, "cpus", "processors")
	create.Flags().Var(wholeFlag[int]{&in.MemoryMiB}, "memory", "memory in MiB")
	list := &cobra.Command{
		Use: "list", Short: "List projects", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := e.client(cmd.Context())
			if err != nil {
				return err
			}
			var ps []httpapi.ProjectView
			if err := c.get(cmd.Context(), at{"projects"}, nil, &ps); err != nil {
				return err
			}
			return e.print(ps, func(w io.Writer) {
				if len(ps) == 0 {
					e.note("no projects; make one with 'glasshouse project create FOLDER'")
				}
				for _, p := range ps {
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", p.ID, one(p.Name), p.Kind, p.State, one(p.Source))
				}
			})
		},
	}
	show := &cobra.Command{
		Use: "show PROJECT", Short: "Show a project", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := e.client(cmd.Context())
			if err != nil {
				return err
			}
			var p httpapi.ProjectView
			if err := c.get(cmd.Context(), at{"projects", args[0]}, nil, &p); err != nil {
				return err
			}
			return e.print(p, func(w io.Writer) {
				fmt.Fprintf(w, "id\t%s\nname\t%s\nsource\t%s\nmachine\t%s %s, %s\n", p.ID, one(p.Name), one(p.Source), p.Kind, p.Machine, p.State)
				if p.Imported != nil {
					printImport(w, p.Imported)
				}
			})
		},
	}
	var yes *bool
	del := &cobra.Command{
		Use: "delete PROJECT", Short: "Stop a project's machine and move it to the trash; the source stays", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := e.client(cmd.Context())
			if err != nil {
				return err
			}
			var p domain.Project
			if err := c.get(cmd.Context(), at{"projects", args[0]}, nil, &p); err != nil {
				return err
			}
			if !*yes {
				if err := e.sure(cmd.Context(), fmt.Sprintf("Delete project %s? Its machine and workspace go to the trash.", one(p.Name))); err != nil {
					return err
				}
			}
			// By its id: what was asked about goes, whatever is called so meanwhile.
			if err := c.call(cmd.Context(), "DELETE", at{"projects", string(p.ID)}, nil, nil, nil); err != nil {
				return err
			}
			if err := e.print(map[string]any{"id": p.ID, "name": p.Name}, func(w io.Writer) { fmt.Fprintf(w, "deleted project %s, %s\n", one(p.Name), p.ID) }); err != nil {
				return err
			}
			e.note("moved to %s; 'glasshouse trash empty' frees its space", c.paths.Trash())
			return nil
		},
	}
	yes = yesFlag(del)
	giveUp := &cobra.Command{
		Use: "cancel PROJECT", Short: "Give up the making of a project, or the start of its machine", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := e.client(cmd.Context())
			if err != nil {
				return err
			}
			var out httpapi.Cancelled
			if err := c.post(cmd.Context(), at{"projects", args[0], "cancel"}, nil, map[string]any{}, &out); err != nil {
				return err
			}
			e.note("%s", map[string]string{"create": "given up; nothing of the project is left", "start": "given up; the machine is off"}[out.What])
			return nil
		},
	}
	cmd.AddCommand(create, list, show, giveUp, del)
	return cmd
}

func printImport(w io.Writer, i *event.ProjectImported) {
	commit := i.Commit
	if commit == "" {
		commit = "no commits yet"
	}
	fmt.Fprintf(w, "base\t%s %s, %d files\n", one(i.Branch), commit, i.Files)
	if i.IgnoredOut > 0 {
		fmt.Fprintf(w, "left out\t%d ignored\n", i.IgnoredOut)
	}
	for _, d := range i.Dirty {
		fmt.Fprintf(w, "uncommitted, left out\t%s\n", one(d))
	}
	for _, d := range i.Overlaid {
		fmt.Fprintf(w, "uncommitted, brought along\t%s\n", one(d))
	}
	for _, d := range i.MayDiffer {
		fmt.Fprintf(w, "may differ\t%s\n", one(d))
	}
}

func (e *env) machineCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "machine", Short: "A project's machine"}
	for _, verb := range []struct{ name, short string }{{"start", "Start the machine"}, {"stop", "Power the machine off"}} {
		cmd.AddCommand(&cobra.Command{
			Use: verb.name + " PROJECT", Short: verb.short, Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				c, err := e.client(cmd.Context())
				if err != nil {
					return err
				}
				stop := e.showProgress(cmd.Context(), c)
				defer stop()
				return c.post(cmd.Context(), at{"projects", args[0], "machine", verb.name}, nil, nil, nil)
			},
		})
	}
	cmd.AddCommand(&cobra.Command{
		Use: "show PROJECT", Short: "Show the machine's state, as the host sees it", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := e.client(cmd.Context())
			if err != nil {
				return err
			}
			var m httpapi.MachineView
			if err := c.get(cmd.Context(), at{"projects", args[0], "machine"}, nil, &m); err != nil {
				return err
			}
			return e.print(m, func(w io.Writer) {
				fmt.Fprintf(w, "machine\t%s\nkind\t%s\nstate\t%s\n", m.ID, m.Kind, m.State)
				if m.Problem != "" {
					fmt.Fprintf(w, "problem\t%s\n", one(m.Problem))
				}
				for role, pid := range m.Pids {
					fmt.Fprintf(w, "process\t%s %d\n", role, pid)
				}
			})
		},
	})
	return cmd
}

func (e *env) imageCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "image", Short: "The guest image"}
	cmd.AddCommand(&cobra.Command{
		Use: "build", Short: "Build the guest image if it is not there", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := e.client(cmd.Context())
			if err != nil {
				return err
			}
			stop := e.showProgress(cmd.Context(), c)
			var out httpapi.ImageView
			err = c.post(cmd.Context(), at{"image"}, nil, nil, &out)
			stop()
			if err != nil {
				return err
			}
			return e.print(out, func(w io.Writer) { fmt.Fprintf(w, "image %s\n", out.Hash) })
		},
	})
	return cmd
}
