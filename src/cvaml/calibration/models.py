"""Exact minimisers of the model losses over classes of models, and their excess regret.

For one start state the expected loss of a model ξ is `(E_ξ V - μ)² + c·Var_ξ V + const`, with
`μ = E_P y` and `c = variance_weight(k, correction)`. Given its mean, ξ enters through its second
moment alone, so some minimiser lives on two states: on neighbours in value if c > 0, on the two
extremes if c < 0, on any pair around μ if c = 0. On each pair the loss is a parabola (a line if
c = 1) and its minimum is known; the losses themselves then choose among the pairs.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from cvaml.calibration.checks import check_distribution, check_finite
from cvaml.calibration.evaluate import Rows, surrogate_losses, target_losses
from cvaml.losses import Correction, variance_weight
from cvaml.types import UserError

# Losses of order one are computed to about 1e-15; what is closer than this counts as a tie.
_TIE = 1e-12


@dataclass(frozen=True)
class ModelClass:
    """Which models may be chosen for one start state."""

    name: str
    """Name in tables."""
    deterministic: bool = False
    """Point masses only."""
    noise_floor: float = 0.0
    """ε of the class `(1-ε)·q + ε·uniform`, q any distribution; 0 is the class of all."""

    def __post_init__(self) -> None:
        if not 0 <= self.noise_floor < 1:
            raise UserError(f"noise_floor must be in [0, 1), got {self.noise_floor}")

    def mix(self, distributions: Float[np.ndarray, "*s n"]) -> Float[np.ndarray, "*s n"]:
        """The members of the class that belong to the free parts `q`."""
        uniform = np.full_like(distributions, 1 / distributions.shape[-1])
        return np.asarray((1 - self.noise_floor) * distributions + self.noise_floor * uniform)


DETERMINISTIC = ModelClass("deterministic", deterministic=True)
ALL = ModelClass("all")
FLOOR = ModelClass("floor", noise_floor=0.1)


class Start(NamedTuple):
    """One start state: what a model loss needs to know."""

    p_true: Float[np.ndarray, " n"]
    """The environment's distribution of the m-th state."""
    values: Float[np.ndarray, " n"]
    """V of each state."""
    targets: Float[np.ndarray, " n"]
    """y of each state; V itself for b = 0."""

    @property
    def mean(self) -> float:
        """μ, the value that the model should predict."""
        return float(self.p_true @ self.targets)


class Regret(NamedTuple):
    """Excess regret of a set of minimisers, start state by start state."""

    excess: Float[np.ndarray, " starts"]
    """Largest target loss over the minimisers of the surrogate, minus the floor."""
    floor: Float[np.ndarray, " starts"]
    """Smallest target loss in the class."""
    surrogate: Float[np.ndarray, " starts"]
    """Smallest surrogate loss in the class."""


def model_candidates(
    start: Start, k: int, correction: Correction, models: ModelClass
) -> Float[np.ndarray, "s n"]:
    """Models among which all minimisers of the expected loss are found.

    States of equal value are interchangeable; one stands for all. The set of minimisers is the
    convex hull of the best candidates of equal mean, so the supremum of the convex target loss
    over it is attained at a candidate.

    Args:
        start: the start state.
        k: number of model samples.
        correction: which variance estimator is subtracted.
        models: the class.

    Returns:
        One model per row.
    """
    states = np.eye(len(start.values))
    if models.deterministic:
        return states
    weight = variance_weight(k, correction)
    _, order = np.unique(start.values, return_index=True)
    if len(order) == 1:
        return models.mix(states[order])
    if weight > 0:
        low, high = order[:-1], order[1:]
    elif weight < 0:
        low, high = order[:1], order[-1:]
    else:
        low, high = (np.array(ends) for ends in zip(*itertools.combinations(order, 2), strict=True))
    if weight == 1:  # linear between two states: the best is one of them, or both and all between
        return models.mix(states[order])
    a, b = start.values[low], start.values[high]
    mean = (start.mean - weight * (a + b) / 2) / (1 - weight)
    free_mean = (mean - models.noise_floor * start.values.mean()) / (1 - models.noise_floor)
    upper = np.clip((free_mean - a) / (b - a), 0, 1)[:, None]
    return models.mix((1 - upper) * states[low] + upper * states[high])


def class_floor(start: Start, models: ModelClass) -> float:
    """The smallest target loss that any model of the class has at that start state."""
    if models.deterministic:
        return float(np.min((start.values - start.mean) ** 2))
    noise = models.noise_floor * start.values.mean()
    lowest = (1 - models.noise_floor) * start.values.min() + noise
    highest = (1 - models.noise_floor) * start.values.max() + noise
    return float(max(lowest - start.mean, start.mean - highest, 0.0) ** 2)


def model_regret(
    starts: Sequence[Start], k: int, correction: Correction, models: ModelClass
) -> Regret:
    """Excess regret of the surrogate's minimisers, for each of many start states.

    Args:
        starts: the start states, of problems of any size.
        k: number of model samples.
        correction: which variance estimator is subtracted.
        models: the class over which surrogate and target are minimised.

    Returns:
        Excess, floor and surrogate minimum of each start state.
    """
    fixed = stack_starts(starts)
    candidates = [model_candidates(start, k, correction, models) for start in starts]
    counts = [len(found) for found in candidates]
    first = np.concatenate([[0], np.cumsum(counts)[:-1]])
    p_true, values, targets = np.repeat(fixed, counts, axis=1)
    rows = Rows(_stack(candidates, fixed.shape[-1]), p_true, values, targets)
    surrogate = surrogate_losses(rows, k, correction)
    least = np.minimum.reduceat(surrogate, first)
    best = surrogate <= np.repeat(least + _TIE * (1 + np.abs(least)), counts)
    target = np.where(best, target_losses(rows), -np.inf)
    floor = np.array([class_floor(start, models) for start in starts])
    return Regret(np.maximum.reduceat(target, first) - floor, floor, least)


def closed_form_regret(start: Start, k: int, correction: Correction) -> float:
    """The regret by formula, over all distributions and for distinct values.

    With a <= μ <= b the values next to μ and c their middle: k = 1 takes the nearer of a and b;
    k >= 2 has `E_ξ V = clip(μ + (μ - c)/(k - 1), a, b)`, so the regret is `(μ - c)²/(k - 1)²` once
    unclipped; the printed correction has `E_ξ V - μ = (k-2)/(2k-2)·((V_min + V_max)/2 - μ)` (only
    while that mean lies between V_min and V_max, which μ inside guarantees).

    Args:
        start: the start state.
        k: number of model samples.
        correction: which variance estimator is subtracted.

    Returns:
        The target loss at the minimiser minus the class floor.
    """
    stack_starts([start])
    lowest, highest, mean = start.values.min(), start.values.max(), start.mean
    if correction == "unbiased":
        return 0.0
    if not lowest < mean < highest:  # the nearest value is best for every c up to 1
        inside = np.clip(mean, lowest, highest)
        if correction == "none" or k == 2:
            return 0.0
        chosen = mean + (k - 2) / (2 * k - 2) * ((lowest + highest) / 2 - mean)
        chosen = np.clip(chosen, lowest, highest)
        return float((chosen - mean) ** 2 - (inside - mean) ** 2)
    if correction == "printed":
        return float(((k - 2) / (2 * k - 2) * ((lowest + highest) / 2 - mean)) ** 2)
    a = start.values[start.values <= mean].max()
    b = start.values[start.values >= mean].min()
    if a == b:
        return 0.0
    if k == 1:
        return float(min(mean - a, b - mean) ** 2)
    middle = (a + b) / 2
    return float((np.clip(mean + (mean - middle) / (k - 1), a, b) - mean) ** 2)


def stack_starts(starts: Sequence[Start]) -> Float[np.ndarray, "3 starts n"]:
    """Distribution, values and targets of every start state, padded with zeros, checked.

    Raises:
        UserError: an array is not finite, no distribution, or not as long as the others.
    """
    width = max(len(start.values) for start in starts)
    fixed = np.zeros((3, len(starts), width))
    for index, start in enumerate(starts):
        lengths = {len(array) for array in start}
        if len(lengths) > 1:
            raise UserError(f"p_true, values and targets must be of one length, got {lengths}")
        fixed[:, index, : len(start.values)] = start
    check_distribution("p_true", fixed[0])
    check_finite("values", fixed[1])
    check_finite("targets", fixed[2])
    return fixed


def _stack(
    candidates: Sequence[Float[np.ndarray, "_ _n"]], width: int
) -> Float[np.ndarray, "rows width"]:
    """All candidates of all start states, padded with probability 0."""
    rows = np.zeros((sum(map(len, candidates)), width))
    stop = 0
    for found in candidates:
        begin, stop = stop, stop + len(found)
        rows[begin:stop, : found.shape[1]] = found
    return rows
