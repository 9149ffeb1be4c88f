"""`cvaml cliffwalk`: the paper's control study, its last figure."""

import dataclasses
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from cvaml.types import UserError, usable_cores

if TYPE_CHECKING:
    import pandas as pd

    from cvaml.losses import Variant
    from cvaml.runs.folder import RunFolder
    from cvaml.tabular.fit import FitState, Task
    from cvaml.tabular.mdp import FiniteMDP

BLOCK = 64
"""Fits that run in one program; a block that is not full is padded, so its numbers never depend
on how many there are."""

FINAL_STEP = 0.02
"""What is left of the step sizes at the last step of the sampled mode."""


@dataclass(frozen=True)
class Config:
    """Policy iteration on a 5x5 cliffwalk with low-rank models: which loss finds the way?"""

    ranks: tuple[int, ...] = (1, 2, 4, 8)
    """Ranks of the model: rows of the figure."""
    temps: tuple[float, ...] = (0.5, 0.8, 0.99)
    """Probabilities of moving in the intended direction: columns of the figure."""
    variants: tuple[str, ...] = ("mle", "vaml-1-0", "cvaml-1-0", "vaml-1-1", "cvaml-1-1")
    """Losses by name, for instance cvaml-1-1+td; see the page on losses."""
    k: tuple[int, ...] = (1, 4)
    """Model samples: each variant runs with every k it can use. A corrected loss skips k = 1;
    mle draws none and runs once."""
    mode: Literal["exact", "sampled"] = "exact"
    """Expectations in closed form, or k draws with real successors and decaying steps."""
    seeds: int = 32
    """Initialisations of the model."""
    iterations: int = 12
    """Improvements of the policy, which begins uniform."""
    steps: int = 500
    """Training steps of one evaluation."""
    gamma: float = 0.9
    """Discount."""
    spread: float = 0.01
    """Standard deviation of the model's first parameters."""
    model_step: float = 0.01
    """Step of Adam for the model."""
    value_step: float = 0.1
    """Step of the value updates."""
    cliff: Literal["reset", "end"] = "reset"
    """What a fall does: back to the start, as in Gymnasium, or end of the episode."""
    fresh: bool = False
    """Begin every evaluation with a new model and V = 0, not with what the last one left."""
    improvement: Literal["model", "environment"] = "model"
    """Whether the greedy step looks ahead with the model or with the true kernel."""
    seed: int = 0
    """Seed of all initialisations."""
    out: Path = Path("runs/cliffwalk")
    """Run folder; the same command completes what is missing in it."""


@dataclass(frozen=True)
class Cell:
    """One panel of the figure and everything that determines its numbers."""

    rank: int
    temp: float
    variants: tuple[tuple[str, int], ...]
    """Name and k of each loss."""
    seeds: int
    iterations: int
    steps: int
    gamma: float
    spread: float
    mode: Literal["exact", "sampled"]
    model_step: float
    value_step: float
    cliff: Literal["reset", "end"]
    fresh: bool
    improvement: Literal["model", "environment"]
    seed: int

    @property
    def name(self) -> str:
        """A name that no other cell of the study has."""
        return f"rank-{self.rank}-temp-{self.temp:g}"


def main(config: Config) -> int:
    """Runs what is missing, writes the results and prints a short table."""
    from cvaml.runs.lock import locked

    todo = cells(config)
    folder = open_folder(config)
    with locked(folder.path):
        if folder.done is None:
            _run_missing(folder, todo)
            merge(folder, todo)
    say(folder)
    return 0


def open_folder(config: Config) -> "RunFolder":
    """The run folder of everything that determines the results."""
    import jax

    from cvaml.runs.folder import RunFolder

    # Another type of device rounds differently, so a folder belongs to one.
    settings = dataclasses.asdict(config) | {"device": jax.default_backend()}
    del settings["out"]
    return RunFolder.open(config.out, "cliffwalk", settings)


def say(folder: "RunFolder") -> None:
    """Prints the short table and where the files are."""
    from cvaml.reports.cliffwalk import short_table

    print(short_table(folder.path))
    files = ("results.parquet", "summary.csv", "figure.png", "figure.pdf", "config.json")
    print(f"\n{folder.path}: {', '.join(files)}")


def cells(config: Config) -> list[Cell]:
    """The cells of a study; the same cell has the same name and numbers in every study.

    Raises:
        UserError: the configuration makes no sense; no work has been done.
    """
    from cvaml.tabular.cliffwalk import check_temp
    from cvaml.tabular.lowrank import check_rank_of_model

    for name in ("ranks", "temps", "variants", "k"):
        values = getattr(config, name)
        if not values or len(set(values)) < len(values):
            raise UserError(f"--{name} needs at least one value and none twice, got {values}")
    for rank in config.ranks:
        check_rank_of_model(rank)
    for temp in config.temps:
        check_temp(temp)
    for name in ("seeds", "iterations", "steps"):
        if getattr(config, name) < 1:
            raise UserError(f"--{name} must be at least 1, got {getattr(config, name)}")
    for name in ("model_step", "value_step"):
        if not 0 < getattr(config, name) < float("inf"):
            option = name.replace("_", "-")
            raise UserError(f"--{option} must be positive and finite, got {getattr(config, name)}")
    if not 0 <= config.gamma < 1:
        raise UserError(f"--gamma must be at least 0 and below 1, got {config.gamma}")
    if not 0 <= config.spread < float("inf"):
        raise UserError(f"--spread must be at least 0 and finite, got {config.spread}")
    if config.seed < 0:
        raise UserError(f"--seed must be at least 0, got {config.seed}")
    shared = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    own = {field.name for field in dataclasses.fields(Cell)} - {"variants"}
    shared = {name: value for name, value in shared.items() if name in own}
    losses = chosen_losses(config.variants, config.k, config.mode)
    # Neighbours differ in rank, so that two workers compile two programs, not one twice.
    return [
        Cell(rank=rank, temp=temp, variants=losses, **shared)
        for temp in config.temps
        for rank in config.ranks
    ]


def chosen_losses(
    names: tuple[str, ...], ks: tuple[int, ...], mode: Literal["exact", "sampled"] = "exact"
) -> tuple[tuple[str, int], ...]:
    """Every variant with every k it can use.

    Raises:
        UserError: a variant is unknown or unfit, or no k is in its range.
    """
    from cvaml.losses import fit_variant
    from cvaml.tabular.study import rule_of

    if min(ks) < 1:
        raise UserError(f"--k must be at least 1, got {min(ks)}")
    found = []
    for name in names:
        default = fit_variant(name, "tabular")
        usable = ks if default.correction == "none" else tuple(k for k in ks if k >= 2)
        if default.loss is None:
            usable = (default.k,)
        if not usable:
            raise UserError(f"variant {name!r} needs a --k of at least 2, got {ks}")
        for k in usable:
            rule_of(fit_variant(name, "tabular", k), mode)  # refuses what a mode cannot do
            found.append((name, k))
    return tuple(found)


def run_cell(cell: Cell, after: Callable[[], None] = lambda: None) -> "pd.DataFrame":
    """Policy iteration of every loss and seed of one cell.

    Args:
        cell: what to run; equal cells give equal bits on one type of device.
        after: called after each iteration of a block.

    Returns:
        One row per loss, seed and iteration: `variant, k, rank, temperature, seed, iteration,
        return, optimal_return, value_error, entropy`. `return` is the exact value of the policy
        at the start; `value_error` the mean squared error of the V that led to it, against the
        exact value of the policy it evaluated; `entropy` that of the model in nats.
    """
    import numpy as np
    import pandas as pd

    from cvaml.tabular.cliffwalk import cliff_cells, cliffwalk, start_cell
    from cvaml.tabular.control import exact_values, iterate_policies
    from cvaml.tabular.mdp import optimal_value
    from cvaml.tabular.study import rule_of

    mdp = cliffwalk(cell.temp, cell.gamma, cell.cliff)
    counted = (mdp.continues > 0) & ~cliff_cells()
    tables = []
    for block in blocks(cell):
        iterates = iterate_policies(
            rule_of(block[0].loss, cell.mode),
            *_stacked(cell, mdp, block),
            cell.iterations,
            cell.steps,
            cell.fresh,
            cell.improvement,
            after,
        )
        # [iteration, fit, state]; what pads the block is dropped
        learned = np.stack([iterate.values for iterate in iterates])[:, : len(block)]
        exact = np.stack([exact_values(mdp, iterate.policy) for iterate in iterates])
        exact = exact[:, : len(block)]
        errors = np.full(exact.shape[:2], np.nan)
        errors[1:] = np.square(learned[1:] - exact[:-1])[:, :, counted].mean(axis=2)
        entropy = np.stack([iterate.entropy for iterate in iterates])[:, : len(block)]
        for i, fit in enumerate(block):
            own = {
                "variant": fit.loss.name,
                "k": fit.loss.k,
                "rank": cell.rank,
                "temperature": cell.temp,
                "seed": fit.seed,
                "iteration": np.arange(len(iterates)),
                "return": exact[:, i, start_cell()],
                "optimal_return": optimal_value(mdp)[start_cell()],
                "value_error": errors[:, i],
                "entropy": entropy[:, i].astype(np.float64),
            }
            tables.append(pd.DataFrame(own))
    return pd.concat(tables, ignore_index=True)


class Fit(NamedTuple):
    """One policy iteration: a loss and an initialisation."""

    loss: "Variant"
    seed: int


def blocks(cell: Cell) -> list[list[Fit]]:
    """The fits of a cell in blocks of one program each: losses with the same gradient rule."""
    from cvaml.losses import fit_variant
    from cvaml.tabular.study import rule_of

    by_rule: dict[object, list[Fit]] = {}
    for name, k in cell.variants:
        loss = fit_variant(name, "tabular", k)
        fits = [Fit(loss, seed) for seed in range(cell.seeds)]
        by_rule.setdefault(rule_of(loss, cell.mode), []).extend(fits)
    return [
        fits[first : first + BLOCK]
        for fits in by_rule.values()
        for first in range(0, len(fits), BLOCK)
    ]


def _stacked(cell: Cell, mdp: "FiniteMDP", block: list[Fit]) -> "tuple[Task, FitState]":
    """Tasks and start of a block, filled up with copies of its last fit."""
    import numpy as np

    from cvaml.tabular.blocks import stack
    from cvaml.tabular.fit import Steps, Task, init_fit
    from cvaml.tabular.lowrank import draw_model
    from cvaml.tabular.objective import as_problem, coefficients

    # Draws never settle, so their steps decay to the last one of the study.
    final = 1.0 if cell.mode == "exact" else FINAL_STEP
    total = cell.steps * (1 if cell.fresh else cell.iterations)
    numbers = (cell.model_step, cell.value_step, final, total)
    sizes = Steps(*(np.float32(number) for number in numbers))
    problem = as_problem(mdp)
    tasks, starts = [], []
    for fit in [*block, *block[-1:] * (BLOCK - len(block))]:
        # An initialisation is the same for every loss and temp, in a study of any size.
        source = np.random.SeedSequence(cell.seed, spawn_key=(cell.rank, fit.seed))
        rows = mdp.states * mdp.actions
        model = draw_model(np.random.default_rng(source), cell.rank, mdp.states, rows, cell.spread)
        starts.append(init_fit(model, mdp.states))
        tasks.append(Task(problem, coefficients(fit.loss), sizes, np.uint32(fit.seed)))

    return stack(tasks), stack(starts)


def shard(cell: Cell) -> str:
    """The file of a cell inside the run folder."""
    return f"shards/{cell.name}.parquet"


def merge(folder: "RunFolder", todo: list[Cell]) -> None:
    """Makes results, summary and figure from the shards and marks the study as finished."""
    import pandas as pd

    from cvaml.reports.cliffwalk import draw_grid, summarise

    ordered = sorted(todo, key=lambda cell: (cell.rank, cell.temp))
    shards = [pd.read_parquet(folder.file(shard(cell))) for cell in ordered]
    results = pd.concat(shards, ignore_index=True)
    folder.write_table("results.parquet", results)
    summary = summarise(results)
    folder.write_table("summary.csv", summary)
    figure = draw_grid(summary)
    folder.write("figure.png", lambda path: figure.savefig(path, format="png", dpi=150))
    folder.write("figure.pdf", lambda path: figure.savefig(path, format="pdf"))
    folder.finish({"cells": len(todo), "rows": len(results)})


def _run_missing(folder: "RunFolder", todo: list[Cell]) -> None:
    """Runs the cells without a shard, one on each core at a time."""
    from cvaml.runs.progress import Progress

    work = {cell: len(blocks(cell)) * cell.iterations for cell in todo}
    left = [cell for cell in todo if not folder.file(shard(cell)).exists()]
    done = sum(work.values()) - sum(work[cell] for cell in left)
    guard, stop = threading.Lock(), threading.Event()
    progress = Progress(sum(work.values()), "cliffwalk", "iterations", done=done)

    def run(cell: Cell) -> None:
        def after() -> None:
            if stop.is_set():
                raise InterruptedError(f"cell {cell.name} was stopped")
            with guard:
                progress.advance(1, cell.name)

        folder.write_table(shard(cell), run_cell(cell, after))

    with progress, ThreadPoolExecutor(usable_cores()) as pool:
        running = [pool.submit(run, cell) for cell in left]
        try:
            for future in as_completed(running):
                future.result()
        finally:  # after an error or Ctrl-C the other cells end too
            stop.set()
            pool.shutdown(cancel_futures=True)
