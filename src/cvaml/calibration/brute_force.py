"""Minimising a model loss without the theory: every pair of states on an ever finer grid."""

import itertools
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from cvaml.calibration.evaluate import Rows, surrogate_losses, target_losses
from cvaml.calibration.models import ALL, Regret, Start, class_floor, stack_starts
from cvaml.losses import Correction


def brute_force_regret(
    starts: Sequence[Start], k: int, correction: Correction, points: int = 21, zooms: int = 8
) -> Regret:
    """Regret of a numerical minimiser over all distributions on two states.

    A grid of mixing weights on every pair of states, narrowed around the best point of each pair,
    `zooms` times by a factor of `(points - 1)/2`; nothing but evaluations of the loss.

    Args:
        starts: the start states.
        k: number of model samples.
        correction: which variance estimator is subtracted.
        points: grid points per pair.
        zooms: how often the grid is narrowed.

    Returns:
        Excess of the best point found, class floor and the surrogate loss there.
    """
    fixed = stack_starts(starts)
    pairs = [
        (owner, low, high)
        for owner, start in enumerate(starts)
        for low, high in itertools.combinations(range(len(start.values)), 2)
    ]
    owner, low, high = np.array(pairs).T
    centre, half = np.full(len(pairs), 0.5), 0.5
    for _ in range(zooms + 1):
        upper = np.clip(centre[:, None] + np.linspace(-half, half, points), 0, 1)
        p_model = _mixtures(low, high, upper, fixed.shape[-1])
        p_true, values, targets = np.repeat(fixed[:, owner], points, axis=1)
        rows = Rows(p_model, p_true, values, targets)
        losses = surrogate_losses(rows, k, correction).reshape(upper.shape)
        best = losses.argmin(axis=1)
        centre = upper[np.arange(len(pairs)), best]
        half *= 2 / (points - 1)
    least = losses.min(axis=1)
    chosen = np.array(
        [
            group[least[group].argmin()]
            for group in (np.flatnonzero(owner == i) for i in range(len(starts)))
        ]
    )
    found = p_model[chosen * points + best[chosen]]
    target = target_losses(Rows(found, fixed[0], fixed[1], fixed[2]))
    floor = np.array([class_floor(start, ALL) for start in starts])
    return Regret(target - floor, floor, least[chosen])


def _mixtures(
    low: Int[np.ndarray, " pairs"],
    high: Int[np.ndarray, " pairs"],
    upper: Float[np.ndarray, "pairs points"],
    states: int,
) -> Float[np.ndarray, "rows states"]:
    """One distribution per pair and weight of its higher-numbered state."""
    p_model = np.zeros((*upper.shape, states))
    index = np.arange(len(low))
    p_model[index, :, low] = 1 - upper
    p_model[index, :, high] = upper
    return p_model.reshape(-1, states)
