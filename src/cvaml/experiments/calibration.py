"""Table 1 of the paper and the propositions behind it, recomputed: `cvaml calibration`.

Nothing is trained. Random finite problems are drawn, every loss of the family is minimised
exactly, and the regret of its minimisers decides which cells of the table are calibrated.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cvaml import calibration as theory
from cvaml.calibration.gradients import LossName
from cvaml.calibration.problems import Environment, Kind
from cvaml.calibration.table import CORRECTIONS, HORIZONS
from cvaml.losses import Correction
from cvaml.reports import calibration as report
from cvaml.runs.folder import RunFolder
from cvaml.runs.progress import Progress
from cvaml.types import UserError

SAMPLES = (1, 2, 3, 4, 6, 8, 16, 32, 64)
_LOSSES: tuple[LossName, ...] = ("itervaml", "muzero", "td")
_ROLLOUT_STATES = 4
_COMPACT_SHOWN = 4  # problems whose curves are kept for the figure


@dataclasses.dataclass(frozen=True)
class Config:
    """Recompute Table 1, the propositions and the lemmas of the paper on random problems."""

    problems: int = 200
    """How many stochastic problems, and as many deterministic ones, of 3 to 10 states."""
    seed: int = 0
    """Seed of the problems and of the bootstrap."""
    out: Path = Path("runs/calibration")
    """Folder of the results."""


def main(config: Config) -> None:
    """Computes what the folder lacks, prints the table and says where the files are."""
    least = sum(map(len, theory.KINDS.values()))
    if config.problems < least:
        raise UserError(f"--problems must be at least {least}, got {config.problems}")
    if config.seed < 0:
        raise UserError(f"--seed must not be negative, got {config.seed}")
    settings = {"problems": config.problems, "seed": config.seed}
    folder = RunFolder.open(config.out, "calibration", settings)
    if not folder.file("checks.csv").exists():  # written last, so it stands for both
        results, checks = compute(config)
        folder.write_table("results.parquet", results)
        folder.write_table("checks.csv", checks)
    if not folder.file("summary.csv").exists():
        generator = np.random.default_rng([config.seed, 2])
        results = pd.read_parquet(folder.file("results.parquet"))
        folder.write_table("summary.csv", report.summarise(results, theory.THRESHOLD, generator))
    report.draw(folder)
    print(report.text(folder))


def compute(config: Config) -> tuple[pd.DataFrame, pd.DataFrame]:
    """All results in long form, and the checks of propositions and lemmas."""
    problems = {name: _draw(config, name) for name in theory.KINDS}
    frames: list[pd.DataFrame] = []
    checks: list[theory.Check] = []
    jobs = list(_jobs(config, problems, frames, checks))
    with Progress(len(jobs), "calibration", "cell") as progress:
        for note, job in jobs:
            job()
            progress.advance(1, note)
    rows = [{**check._asdict(), "holds": check.holds} for check in checks]
    return pd.concat(frames, ignore_index=True), pd.DataFrame(rows)


Drawn = Sequence[tuple[Kind, theory.Problem]]


def _draw(config: Config, environment: Environment) -> Drawn:
    """Problem i depends on the seed and on i only, not on how many are drawn."""
    kinds = theory.KINDS[environment]
    stream = list(theory.KINDS).index(environment)
    return [
        (
            kinds[i % len(kinds)],
            theory.draw_problem(
                np.random.default_rng([config.seed, 0, stream, i]),
                environment,
                kinds[i % len(kinds)],
            ),
        )
        for i in range(config.problems)
    ]


def _jobs(
    config: Config,
    problems: dict[Environment, Drawn],
    frames: list[pd.DataFrame],
    checks: list[theory.Check],
) -> Iterator[tuple[str, Callable[[], None]]]:
    """Every piece of work, with its name; each appends to `frames` or `checks`."""
    stochastic = problems["stochastic"]
    full = [(kind, problem) for kind, problem in stochastic if kind == "full"]
    # the rewards of the other kind are made for b = 1
    plain = [(kind, problem) for kind, problem in stochastic if kind != "equivalent"]
    corrections: tuple[Correction, ...] = ("none", "unbiased", "printed")
    for cell in theory.table_cells():
        yield "table 1", partial(_cell, "table", cell, problems[cell.environment], frames)
    for cell in theory.horizon_cells():
        # without a correction every V is determined; with one, in kernels of full rank only
        determined = cell.update == "value" and cell.correction == "none"
        yield "m and b", partial(_cell, "horizon", cell, plain if determined else full, frames)
    for correction in corrections:
        for k in SAMPLES[0 if correction == "none" else 1 :]:
            yield "k", partial(_samples, stochastic, correction, k, frames, checks)
    yield "rollouts", partial(_rollouts, stochastic, frames)
    for loss in _LOSSES:
        yield "gradients", partial(_gradients, stochastic, loss, frames)
    yield "fixed points", partial(_fixed_points, full, frames)
    yield "stationarity", partial(_stationarity, stochastic, checks)
    generator = np.random.default_rng([config.seed, 1])
    finite = [problem for _, problem in stochastic]
    yield "lemmas", lambda: checks.extend(theory.finite_checks(finite, generator))
    yield "compact spaces", partial(_compact, frames, checks)
    yield "auxiliary model", lambda: checks.extend(theory.auxiliary_checks(generator))


def _frame(part: str, drawn: Drawn, metrics: dict[str, Any], **columns: Any) -> pd.DataFrame:
    """One row per problem and metric."""
    base = {
        "part": part,
        **columns,
        "kind": [kind for kind, _ in drawn],
        "problem": np.arange(len(drawn)),
        "states": [problem.states for _, problem in drawn],
    }
    return pd.concat(
        [pd.DataFrame({**base, "metric": name, "value": value}) for name, value in metrics.items()]
    )


def _columns(cell: theory.Cell) -> dict[str, Any]:
    """What identifies a cell in the tables."""
    return {
        "environment": cell.environment,
        "model": cell.model,
        "model_class": cell.models.name,
        "loss": cell.loss,
        "update": cell.update,
        "target": cell.target,
        "m": cell.m,
        "b": cell.b,
        "correction": cell.correction,
        "k": cell.k,
        "paper": "calibrated" if theory.paper_says_calibrated(cell) else "uncalibrated",
    }


def _cell(part: str, cell: theory.Cell, drawn: Drawn, frames: list[pd.DataFrame]) -> None:
    """Excess and floor of one cell; relative to the spread of the targets for values by state."""
    problems = [problem for _, problem in drawn]
    regret = theory.cell_regret(cell, problems)
    metrics = {"excess": regret.excess, "floor": regret.floor}
    if part == "horizon" and cell.target == "state":
        spreads = [_spread(theory.value_problem(cell, problem)) for problem in problems]
        metrics["relative"] = regret.excess / spreads
    frames.append(_frame(part, drawn, metrics, **_columns(cell)))


def _spread(problem: theory.ValueProblem) -> float:
    """Variance of the targets over the states where the model arrives."""
    arrival = problem.model.T @ problem.weights
    return float(arrival @ (problem.targets - arrival @ problem.targets) ** 2)


def _samples(
    drawn: Drawn,
    correction: Correction,
    k: int,
    frames: list[pd.DataFrame],
    checks: list[theory.Check],
) -> None:
    """IterVAML's regret at one k: exact, by formula and by brute force, one start state each."""
    starts = [theory.Start(p.kernel[0], p.values, p.values) for _, p in drawn]
    exact = theory.model_regret(starts, k, correction, theory.ALL)
    formula = np.array([theory.closed_form_regret(start, k, correction) for start in starts])
    brute = theory.brute_force_regret(starts, k, correction)
    cell = theory.Cell("stochastic", theory.ALL, "model", "mean", 1, 0, correction, k)
    metrics = {"excess": exact.excess, "closed_form": formula, "brute_force": brute.excess}
    frames.append(_frame("samples", drawn, metrics, **_columns(cell)))
    where = f"{correction}, k = {k}"
    gaps = {
        "formula and exact regret": (np.abs(formula - exact.excess).max(), 1e-12),
        "brute-force and exact regret": (np.abs(brute.excess - exact.excess).max(), 1e-6),
        "brute-force and exact loss": (np.abs(brute.surrogate - exact.surrogate).max(), 1e-12),
    }
    for what, (gap, bound) in gaps.items():
        checks.append(
            theory.Check("Minimisers", f"max gap of {what}, {where}", float(gap), "<", bound)
        )


def _rollouts(drawn: Drawn, frames: list[pd.DataFrame]) -> None:
    """Deterministic models applied m times, over all maps of small problems."""
    small = [(kind, p) for kind, p in drawn if p.states <= _ROLLOUT_STATES]
    for m in HORIZONS:
        for b in (0, 1):
            for correction, k in (CORRECTIONS[0], CORRECTIONS[2]):
                found = [theory.rollout_regret(p, m, b, k, correction) for _, p in small]
                cell = theory.Cell(
                    "stochastic", theory.DETERMINISTIC, "model", "mean", m, b, correction, k
                )
                excess, floor = np.array(found).reshape(-1, 2).T
                metrics = {"excess": excess, "floor": floor}
                frames.append(_frame("rollout", small, metrics, **_columns(cell)))


def _gradients(drawn: Drawn, loss: LossName, frames: list[pd.DataFrame]) -> None:
    """The rows "can update model" and "can update VF" of Table 1."""
    norms = np.array([theory.update_norms(problem, loss) for _, problem in drawn])
    metrics = {"model_gradient": norms[:, 0], "value_gradient": norms[:, 1]}
    frames.append(_frame("gradients", drawn, metrics, environment="stochastic", loss=loss))


def _fixed_points(drawn: Drawn, frames: list[pd.DataFrame]) -> None:
    """Where MuZero's value update ends with V_tar = V and the true kernel as model."""
    for correction, k in CORRECTIONS[:3]:
        errors = []
        for _, p in drawn:
            truth = np.linalg.solve(np.eye(p.states) - p.discount * p.kernel, p.rewards)
            found = theory.value_fixed_point(
                p.kernel, p.rewards, p.weights, p.discount, k, correction
            )
            errors.append(np.mean((found - truth) ** 2) / np.var(truth))
        cell = theory.Cell("stochastic", theory.ALL, "value", "state", 1, 1, correction, k)
        frames.append(_frame("fixed_point", drawn, {"relative": errors}, **_columns(cell)))


def _stationarity(drawn: Drawn, checks: list[theory.Check]) -> None:
    """The gradient of `expected_vaml_loss` at the computed value functions."""
    steepest = 0.0
    for correction, k in CORRECTIONS[:3]:
        cell = theory.Cell("stochastic", theory.ALL, "value", "mean", 1, 1, correction, k)
        for _, problem in drawn:
            question = theory.value_problem(cell, problem)
            found = theory.value_minimisers(question, k, correction).values
            assert found is not None
            gradient = theory.value_gradient(question, found, k, correction)
            steepest = max(steepest, float(np.abs(gradient).max()))
    checks.append(
        theory.Check("Minimisers", "max |∂loss/∂V| at the value found", steepest, "<", 1e-10)
    )


def _compact(frames: list[pd.DataFrame], checks: list[theory.Check]) -> None:
    """Proposition 3.1, with the curves of some problems for the figure."""
    problems = theory.compact_problems()
    numbers = [theory.compact_numbers(problem) for problem in problems]
    checks.extend(theory.compact_checks(numbers))
    shown = range(0, len(problems), len(problems) // _COMPACT_SHOWN)
    for index in shown:
        found = numbers[index]
        for metric in ("expected", "predicted", "two_step_expected", "two_step_predicted"):
            columns = {
                "part": "compact",
                "name": problems[index].name,
                "problem": index,
                "x": found.x,
                "metric": metric,
                "value": getattr(found, metric),
            }
            frames.append(pd.DataFrame(columns))
