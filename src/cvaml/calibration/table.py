"""Table 1 of the paper as computed cells, and what the paper says in each."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from cvaml.calibration.models import ALL, DETERMINISTIC, FLOOR, ModelClass, Start, model_regret
from cvaml.calibration.problems import Environment, Problem
from cvaml.calibration.values import (
    Target,
    ValueProblem,
    value_excess,
    value_floor,
    value_minimisers,
)
from cvaml.losses import Correction

Update = Literal["model", "value"]

THRESHOLD = 1e-10
"""Calibrated means: the largest excess regret over all problems is below this."""

# Without correction k = 1 and 4, so that k is not confounded with the correction.
CORRECTIONS: tuple[tuple[Correction, int], ...] = (
    ("none", 1),
    ("none", 4),
    ("unbiased", 4),
    ("printed", 4),
)


HORIZONS = (1, 2, 3, 5)


@dataclass(frozen=True)
class Cell:
    """One question of Table 1: does minimising this loss minimise what it stands for?"""

    environment: Environment
    """Whether the environment is stochastic."""
    models: ModelClass
    """The class of models; for a value update, the model that V is trained on is of it."""
    update: Update
    """What is learned."""
    target: Target
    """Correct means over start states, or a correct value of each state."""
    m: int
    """Model steps; 0 is TD."""
    b: int
    """Real steps before the bootstrap; 0 is IterVAML."""
    correction: Correction
    """Variance estimator that is subtracted."""
    k: int
    """Model samples."""

    @property
    def loss(self) -> str:
        """The column of Table 1: itervaml, muzero or td."""
        return "td" if self.m == 0 else "itervaml" if self.b == 0 else "muzero"

    @property
    def model(self) -> str:
        """The row of Table 1: deterministic or stochastic."""
        return "deterministic" if self.models.deterministic else "stochastic"


class CellRegret(NamedTuple):
    """Excess regret and class floor of one cell, problem by problem."""

    excess: Float[np.ndarray, " problems"]
    floor: Float[np.ndarray, " problems"]


def table_cells() -> Iterator[Cell]:
    """Every cell of Table 1, with each correction, for each class of models."""
    environments: tuple[Environment, ...] = ("deterministic", "stochastic")
    for environment in environments:
        for models in (DETERMINISTIC, ALL, FLOOR):
            for correction, k in CORRECTIONS:
                base = Cell(environment, models, "model", "mean", 1, 0, correction, k)
                yield base
                yield replace(base, b=1)
                yield replace(base, b=1, update="value")
                yield replace(base, b=1, update="value", target="state")
                yield replace(base, m=0, b=1, update="value", target="state")


def horizon_cells() -> Iterator[Cell]:
    """The losses at m, b in {1, 2, 3, 5} (and b = 0 for a model), with a stochastic model."""
    for m in HORIZONS:
        for b in (0, *HORIZONS):
            for correction, k in CORRECTIONS:
                base = Cell("stochastic", ALL, "model", "mean", m, b, correction, k)
                yield base
                if b > 0 and correction != "printed":  # printed has no minimal value function
                    yield replace(base, update="value")
                    yield replace(base, update="value", target="state")


def cell_regret(cell: Cell, problems: Sequence[Problem]) -> CellRegret:
    """Excess regret of a cell on each problem, weighted over its start states.

    Args:
        cell: the question.
        problems: the problems, of the cell's environment.

    Returns:
        One excess and one floor per problem.
    """
    if cell.update == "model":
        return _model_cell(cell, problems)
    questions = [value_problem(cell, problem) for problem in problems]
    found = [value_minimisers(question, cell.k, cell.correction) for question in questions]
    return CellRegret(
        value_excess(questions, found, cell.target),
        np.array([value_floor(question, cell.target) for question in questions]),
    )


def value_problem(cell: Cell, problem: Problem) -> ValueProblem:
    """The value loss of a cell: which model V is trained on.

    A stochastic model is the true kernel, mixed with the class's noise floor; a deterministic one
    is the best by enumeration, whose state has the value nearest to the mean of the targets.
    """
    targets = problem.targets(cell.b)
    model = cell.models.mix(problem.kernel)
    if cell.models.deterministic:
        distance = np.abs(targets[None, :] - (problem.kernel @ targets)[:, None])
        model = np.eye(problem.states)[distance.argmin(axis=1)]
    return ValueProblem(
        model=np.linalg.matrix_power(model, cell.m),
        real=problem.steps(cell.m),
        targets=targets,
        weights=problem.weights,
    )


def _model_cell(cell: Cell, problems: Sequence[Problem]) -> CellRegret:
    """Start states are minimised independently, so suprema add up under the weights.

    For m > 1 the class is that of m-step laws, as in Proposition 2.1; `rollout_regret` has
    one-step models applied m times.
    """
    starts, weights, owners = [], [], []
    for owner, problem in enumerate(problems):
        kernel, targets = problem.steps(cell.m), problem.targets(cell.b)
        for x in np.flatnonzero(problem.weights):
            starts.append(Start(kernel[x], problem.values, targets))
            weights.append(problem.weights[x])
            owners.append(owner)
    regret = model_regret(starts, cell.k, cell.correction, cell.models)
    count = len(problems)
    return CellRegret(
        np.bincount(owners, weights * regret.excess, minlength=count),
        np.bincount(owners, weights * regret.floor, minlength=count),
    )


def calibrated(excess: Float[np.ndarray, " problems"]) -> bool:
    """The verdict on a cell: whether its largest excess regret is zero to rounding."""
    return bool(np.max(excess) < THRESHOLD)


def paper_says_calibrated(cell: Cell) -> bool:
    """The paper's verdict: Table 1, and its text where a correction is subtracted.

    The paper calls the printed correction CVAML, so its word on CVAML is its word on that too.
    """
    if cell.loss == "td" or cell.models.deterministic:
        return True
    # "uncalibrated (resolvable)"; for MuZero's value update the correction repairs the mean only
    return cell.correction != "none" and cell.target == "mean"
