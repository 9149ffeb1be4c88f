"""Deterministic models rolled out for several steps: every map of a small state space is tried."""

import itertools

import numpy as np

from cvaml.calibration.evaluate import Rows, surrogate_losses, target_losses
from cvaml.calibration.problems import Problem
from cvaml.losses import Correction
from cvaml.types import UserError

_TIE = 1e-12
_MAX_STATES = 5


def rollout_regret(
    problem: Problem, m: int, b: int, k: int, correction: Correction
) -> tuple[float, float]:
    """Excess regret of deterministic one-step models that are applied m times.

    All start states share one map f, so its m-fold application is minimised jointly, over all
    n^n maps.

    Args:
        problem: a problem of at most 5 states.
        m: model steps.
        b: real steps before the bootstrap.
        k: number of model samples.
        correction: which variance estimator is subtracted.

    Returns:
        The excess, and the smallest target loss of any map.
    """
    n = problem.states
    if n > _MAX_STATES:
        raise UserError(f"all maps are tried for at most {_MAX_STATES} states, got {n}")
    maps = np.array(list(itertools.product(range(n), repeat=n)))
    arrived = np.broadcast_to(np.arange(n), maps.shape)
    for _ in range(m):
        arrived = np.take_along_axis(maps, arrived, axis=1)
    p_model = np.eye(n)[arrived].reshape(-1, n)
    p_true = np.tile(problem.steps(m), (len(maps), 1))
    values = np.broadcast_to(problem.values, p_model.shape)
    targets = np.broadcast_to(problem.targets(b), p_model.shape)
    rows = Rows(p_model, p_true, values, targets)
    surrogate = surrogate_losses(rows, k, correction).reshape(-1, n) @ problem.weights
    target = target_losses(rows).reshape(-1, n) @ problem.weights
    best = surrogate <= surrogate.min() + _TIE * (1 + abs(surrogate.min()))
    return float(target[best].max() - target.min()), float(target.min())
