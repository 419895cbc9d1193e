package hive

import (
	"context"
	"os"

	command "muster/edge/hook"
)

// hook runs the operator's command for one changed agent and returns what went wrong, "" for nothing. The command gets
// MUSTER_HIVE, MUSTER_AGENT and MUSTER_STATE. What it prints goes to the hive's standard error.
func hook(ctx context.Context, line, hive string, a action) string {
	err := command.Run(ctx, command.Command{
		Line: line,
		Env:  []string{"MUSTER_HIVE=" + hive, "MUSTER_AGENT=" + a.agent, "MUSTER_STATE=" + string(a.state)},
		Out:  os.Stderr,
	})
	if err != nil {
		return err.Error()
	}
	return ""
}
