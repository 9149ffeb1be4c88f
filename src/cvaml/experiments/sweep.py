"""`cvaml sweep`: a whole study as cells, on this machine or on a Ray cluster."""

import os
import sys
from dataclasses import dataclass, field
from typing import Annotated, Literal

import tyro

from cvaml.experiments import cliffwalk, dmc, garnet
from cvaml.experiments.dmc_plan import dmc_plan
from cvaml.experiments.plans import Plan, cliffwalk_plan, garnet_plan
from cvaml.runs.cells import Cell, Executor, find_cell, run_cells
from cvaml.types import UserError


@dataclass(frozen=True)
class How:
    """Where the cells run."""

    executor: Literal["inline", "ray"] = "inline"
    """In this process, or as tasks of a Ray cluster."""
    address: str | None = None
    """With ray: an existing cluster, auto or host:port; a local one is started if not given."""
    files: Literal["auto", "shared", "pull"] = "auto"
    """With ray: workers write into the study's folder (shared), or send their files (pull);
    auto shares with the workers that see the folder."""
    retries: int = 3
    """With ray: how often a cell whose process or node was lost runs again."""
    dry_run: bool = False
    """Show the cells and totals, and run nothing."""
    list: bool = False
    """Show number, state and name of every cell, and run nothing."""
    cell: str | None = None
    """Run this cell alone, by name or number; the results are not merged."""


@dataclass(frozen=True)
class Garnet:
    """Value error of low-rank models on random chains."""

    study: garnet.Config = field(default_factory=garnet.Config)
    how: How = field(default_factory=How)


@dataclass(frozen=True)
class Cliffwalk:
    """Control with low-rank models on a cliff."""

    study: cliffwalk.Config = field(default_factory=cliffwalk.Config)
    how: How = field(default_factory=How)


@dataclass(frozen=True)
class Dmc:
    """The deep study: seven dog and humanoid tasks, all variants and ablations."""

    study: dmc.Config = field(default_factory=dmc.Config)
    how: How = field(default_factory=How)


@tyro.conf.configure(tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes)
@dataclass(frozen=True)
class Config:
    """Run what a study still lacks; the same command on the same folder goes on."""

    sweep: (
        Annotated[Garnet, tyro.conf.subcommand("garnet")]
        | Annotated[Cliffwalk, tyro.conf.subcommand("cliffwalk")]
        | Annotated[Dmc, tyro.conf.subcommand("dmc")]
    )


def main(config: Config) -> int:
    """Runs the command; 1 if a cell failed."""
    how = config.sweep.how
    _check(how)
    if how.executor == "ray":
        # The workers need the memory of a GPU that this process may share with them.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    plan = _plan(config.sweep.study)
    if how.list:
        _list(plan)
        return 0
    if how.dry_run:
        _describe(plan)
        return 0
    if how.cell is not None:
        return _run_one(plan, how.cell)

    from cvaml.runs.lock import locked
    from cvaml.runs.signals import Interrupted

    plan.open()
    try:
        with locked(plan.root):
            ran = not all(cell.is_done(plan.root) for cell in plan.cells)
            executor = _executor(how, plan)
            live = not (plan.talks and how.executor == "inline")
            failed = run_cells(plan.cells, plan.root, executor, f"sweep {plan.label}", live)
            if failed:
                return _complain(failed, len(plan.cells))
            plan.finish(ran)
    except Interrupted as stop:
        print(f"cvaml: {stop}; the same command goes on", file=sys.stderr)
        return stop.exit_code
    return 0


def _check(how: How) -> None:
    if how.executor == "inline":
        for name in ("address", "files", "retries"):
            if getattr(how, name) != getattr(How, name):
                raise UserError(f"--{name} needs --executor ray")
    if how.retries < 0:
        raise UserError(f"--retries must be at least 0, got {how.retries}")
    if sum((how.list, how.dry_run, how.cell is not None)) > 1:
        raise UserError("give one of --list, --dry-run and --cell")
    if how.cell is not None and how.executor == "ray":
        raise UserError("--cell runs here; leave --executor ray out")


def _plan(study: garnet.Config | cliffwalk.Config | dmc.Config) -> Plan:
    if isinstance(study, garnet.Config):
        return garnet_plan(study)
    if isinstance(study, cliffwalk.Config):
        return cliffwalk_plan(study)
    return dmc_plan(study)


def _executor(how: How, plan: Plan) -> Executor:
    if how.executor == "ray":
        from cvaml.runs.ray_executor import RayExecutor

        return RayExecutor(how.address, how.files, how.retries)
    from cvaml.runs.inline import Inline

    return Inline(plan.workers)


def _run_one(plan: Plan, key: str) -> int:
    """One cell, as a job array calls it: several such processes may work in one folder."""
    from cvaml.runs.inline import Inline
    from cvaml.runs.signals import Interrupted

    cell = find_cell(plan.cells, key)
    plan.open()
    try:
        failed = run_cells([cell], plan.root, Inline(), f"sweep {plan.label}", not plan.talks)
    except Interrupted as stop:
        print(f"cvaml: {stop}; the same command goes on", file=sys.stderr)
        return stop.exit_code
    return _complain(failed, 1) if failed else 0


def _list(plan: Plan) -> None:
    for number, cell in enumerate(plan.cells):
        print(f"{number}\t{_state(plan, cell)}\t{cell.name}")


def _describe(plan: Plan) -> None:
    """The cells and what they add up to."""
    for cell in plan.cells:
        needs = f"{cell.cpus:g} CPU" + (f", {cell.gpus:g} GPU" if cell.gpus else "")
        print(f"  {_state(plan, cell):6} {needs:16} {cell.name}")
    done = sum(cell.is_done(plan.root) for cell in plan.cells)
    print(f"{plan.label}: {len(plan.cells)} cells, {done} done, in {plan.root}")
    if plan.notes:
        print(plan.notes)


def _state(plan: Plan, cell: Cell) -> str:
    if cell.is_done(plan.root):
        return "done"
    return "begun" if (plan.root / cell.output).exists() else "todo"


def _complain(failed: dict[str, str], total: int) -> int:
    """Says which cells failed and why."""
    print(f"cvaml: {len(failed)} of {total} cells failed", file=sys.stderr)
    for name, reason in failed.items():
        print(f"  {name}: {reason}", file=sys.stderr)
    return 1
