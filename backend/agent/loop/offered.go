package loop

import (
	"slices"
	"strings"

	"glasshouse/backend/domain"
	"glasshouse/backend/model"
	"glasshouse/backend/policy"
	"glasshouse/backend/tool"
)

// order in which a model sees the tools; others come after them by name. It never
// changes while a session lasts, so that a server's cache of it stays good.
var order = []string{"exec", "read", "write", "edit", "search", "glob", "list",
	"browser_open", "browser_snapshot", "browser_click", "browser_type", "browser_screenshot", "ask_user", planName, checksName}

// offered are the tools that a model is given in a mode. Some are left out in plan mode
// for their calls would be denied one and all; that they are is not the fence.
func offered(all []tool.Tool, mode policy.Mode, checks bool) []model.Tool {
	all = append(slices.Clone(all), planTool())
	if checks {
		all = append(all, checksTool())
	}
	slices.SortStableFunc(all, func(a, b tool.Tool) int {
		if n := rank(a.Name) - rank(b.Name); n != 0 {
			return n
		}
		return strings.Compare(a.Name, b.Name)
	})
	var out []model.Tool
	for _, t := range all {
		if mode == policy.ModePlan && (t.Changes || t.Reach != domain.ReachRead && t.Reach != domain.ReachPerson) {
			continue
		}
		out = append(out, model.Tool{Name: t.Name, Description: t.Description, Schema: model.Schema(t.Schema)})
	}
	return out
}

func rank(name string) int {
	if i := slices.Index(order, name); i >= 0 {
		return i
	}
	return len(order)
}
