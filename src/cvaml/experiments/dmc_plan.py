"""How the deep study is run: all of it, or the most informative part that fits a budget."""

import dataclasses
import json
from collections.abc import Mapping

from cvaml.experiments.dmc import ACTION_REPEAT, GROUPS, STAGES, Config, Piece, as_cell, pieces
from cvaml.experiments.dmc_results import summarise
from cvaml.experiments.plans import Plan
from cvaml.types import UserError


def dmc_plan(config: Config) -> Plan:
    """The study for a sweep."""
    chosen, left_out = choose(config)
    cells = [as_cell(config, piece) for piece in chosen]

    def make_folder() -> None:
        try:
            config.out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot create the folder {config.out}: {error.strerror}") from None

    def finish(ran: bool) -> None:
        summarise(config.out, cells)

    notes = describe(config, chosen, left_out)
    return Plan("dmc", config.out, cells, make_folder, finish, talks=True, notes=notes)


def describe(config: Config, chosen: list[Piece], left_out: list[Piece]) -> str:
    """Totals by question, and what a budget leaves out."""
    rate = rates(config)
    lines = ["", f"{'':50}{'curves':>8}{'agent steps':>14}" + (f"{'hours':>8}" if rate else "")]

    def row(name: str, some: list[Piece]) -> str:
        curves = sum(piece.members * len(piece.tasks) for piece in some)
        steps = sum(piece.steps for piece in some)
        text = f"{name:50}{curves:8}{steps / 1e6:12.1f} M"
        return text + (f"{sum(hours(piece, rate) for piece in some):8.1f}" if rate else "")

    def rows(some: list[Piece]) -> list[str]:
        named = {stage: [piece for piece in some if piece.stage == stage] for stage in STAGES}
        return [row(stage, of) for stage, of in named.items() if of]

    lines += [*rows(chosen), row("all", chosen)]
    steps = chosen[0].agent_steps * ACTION_REPEAT
    lines.append(f"\n{steps} environment steps a curve")
    if rate:
        each = ", ".join(f"{group} {value:g}" for group, value in rate.items())
        lines.append(f"agent steps/s of a cell: {each}")
    else:
        lines.append("for hours give --steps-per-s, or --bench with a result of cvaml bench train")
    if config.budget is not None:
        lines.append(f"\nleft out by a budget of {config.budget:g} hours:")
        lines += rows(left_out) or ["nothing"]
        if steps < config.env_steps:
            lines.append(f"and the steps of all runs after {steps}")
    return "\n".join(lines)


def rates(config: Config) -> dict[str, float]:
    """Agent steps per second of a cell by group; empty if none is given."""
    if config.steps_per_s is not None:
        return dict.fromkeys(GROUPS, config.steps_per_s)
    found: dict[str, float] = {}
    for path in config.bench:
        try:
            measured = json.loads(path.read_text())
            group, rate = measured["task"][0].split("-")[0], float(measured["training"])
        except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
            raise UserError(f"{path} is no result of cvaml bench train: {error!r}") from None
        found[group] = rate
    if len(config.bench) == 1:  # one measurement stands for both
        return dict.fromkeys(GROUPS, next(iter(found.values())))
    missing = [group for group in GROUPS if group not in found]
    if found and missing:
        raise UserError(f"--bench has no measurement of a {missing[0]} task")
    return found


def hours(piece: Piece, rate: Mapping[str, float]) -> float:
    """Hours a piece takes on one device."""
    return piece.steps / rate[piece.group] / 3600


def choose(config: Config) -> tuple[list[Piece], list[Piece]]:
    """The pieces to run and those that the budget leaves out.

    Pieces are taken in their order while they fit. If the first question cannot be answered at
    all, every run is cut to half of its steps.
    """
    whole = pieces(config)
    if config.budget is None:
        return whole, []
    rate = rates(config)
    chosen = _fitting(whole, config.budget, rate)
    first = next(iter(STAGES))
    asked = {piece.group for piece in whole if piece.stage == first}
    if asked - {piece.group for piece in chosen if piece.stage == first}:
        whole = pieces(dataclasses.replace(config, env_steps=config.env_steps // 2))
        chosen = _fitting(whole, config.budget, rate)
    if not chosen:
        raise UserError(
            f"--budget {config.budget:g} holds no cell: the smallest takes "
            f"{min(hours(piece, rate) for piece in whole):.3g} hours"
        )
    taken = set(chosen)
    return chosen, [piece for piece in whole if piece not in taken]


def _fitting(whole: list[Piece], budget: float, rate: Mapping[str, float]) -> list[Piece]:
    chosen, spent = [], 0.0
    for piece in whole:
        if spent + hours(piece, rate) <= budget:
            chosen.append(piece)
            spent += hours(piece, rate)
    return chosen
