"""doit, extended through its own plugin points: when a step runs again, where it runs, and what is printed.

One command goes through these modules in this order:

- `plan_cache` returns the steps, from the last plan if nothing that it depends on has changed; `tasks` turns them into
  doit's tasks.
- `up_to_date` is doit's dependency manager: it compares a step's inputs, outputs, configuration and command with those
  in `database` (sqlite3, a doit backend), which also keeps the digests of files.
- `lock` lets one run at a time use a build folder.
- `step_runner` is doit's runner: it sends each step to `server_pool`, which starts a server per set of imports
  (`server_main`); a server (`fork_server`) forks a process per step.
- With `doit --on`, `opmatrix.addons.team` hands steps to `Workers`, which `shared_results` describes.
- `step_failure` has the message and the verdict of a step that failed, crashed or was not run; `earlier_verdicts`
  selects the verdicts of earlier runs for the report.
- `progress_reporter` and those of `reporters` are doit reporters: for a terminal, for `doit watch` and for programs.
- `forecast` predicts a run, with the reasons.

`opmatrix.commands.main` gives the loader, the commands, the backend and the reporters to doit.
"""
