"""Exact minimisers of the value losses: MuZero's V with a fixed model, and TD (m = 0).

With start weights ρ, m-step kernels M of the model and P of the environment, and targets y, the
expected loss is a quadratic of the table V (Proposition 2.3, c = variance_weight(k, correction)):

    Σ_x ρ(x) [((M V)(x) - (P y)(x))² + c·Var_M V(x)]
    [(1 - c) Mᵀdiag(ρ)M + c·diag(Mᵀρ)] V = Mᵀdiag(ρ)P y      at its minimum, if it has one.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from cvaml.calibration.checks import check_distribution, check_finite
from cvaml.calibration.evaluate import Rows, target_losses
from cvaml.losses import Correction, expected_vaml_loss, variance_weight
from cvaml.types import UserError

Target = Literal["mean", "state"]
"""`mean`: `(E_M V - E_P y)²` over start states; `state`: `(V - y)²` over the states where the
model arrives."""

# Singular values and null directions below this, relative to the largest, are rounding.
_RANK_TOLERANCE = 1e-10


@dataclass(frozen=True)
class ValueProblem:
    """A value loss: who predicts, who answers, with what weight."""

    model: Float[np.ndarray, "n n"]
    """m-step kernel of the model; the identity for TD."""
    real: Float[np.ndarray, "n n"]
    """m-step kernel of the environment."""
    targets: Float[np.ndarray, " n"]
    """y of each state, `[T^b V_tar](x)`."""
    weights: Float[np.ndarray, " n"]
    """Distribution of the start state."""

    def __post_init__(self) -> None:
        check_distribution("model", self.model)
        check_distribution("real", self.real)
        check_distribution("weights", self.weights)
        check_finite("targets", self.targets)


@dataclass(frozen=True)
class ValueMinimisers:
    """All minimisers of a value loss: one of them plus any combination of the free directions."""

    values: Float[np.ndarray, " n"] | None
    """The minimiser of least norm; None if the loss is unbounded below and has none."""
    free: Float[np.ndarray, "n d"]
    """Orthonormal directions along which the loss is constant."""


def value_minimisers(problem: ValueProblem, k: int, correction: Correction) -> ValueMinimisers:
    """The set of value functions that minimise the expected k-sample loss.

    Args:
        problem: the value loss.
        k: number of model samples.
        correction: which variance estimator is subtracted.

    Returns:
        The affine set of minimisers.
    """
    weight = variance_weight(k, correction)
    if weight < 0:
        return _by_eigenvalues(problem, weight)
    # As least squares: (1-c)·(mean error)² + c·(error of each successor)², which needs no normal
    # equations and so keeps the accuracy of float64 for kernels that are nearly singular.
    n = len(problem.targets)
    answers = problem.real @ problem.targets
    mean_rows = np.sqrt((1 - weight) * problem.weights)
    each_rows = np.sqrt(weight * problem.weights[:, None] * problem.model)
    design = np.concatenate(
        [mean_rows[:, None] * problem.model, (each_rows[:, :, None] * np.eye(n)).reshape(-1, n)]
    )
    right = np.concatenate([mean_rows * answers, (each_rows * answers[:, None]).reshape(-1)])
    left, singular, basis = np.linalg.svd(design, full_matrices=False)
    kept = singular > _RANK_TOLERANCE * singular[0]
    values = basis[kept].T @ ((left.T[kept] @ right) / singular[kept])
    return ValueMinimisers(values, basis[~kept].T)


def _by_eigenvalues(problem: ValueProblem, weight: float) -> ValueMinimisers:
    """Minimisers where variance is rewarded: none as soon as one direction curves downwards."""
    model, weights = problem.model, problem.weights
    curvature = (1 - weight) * model.T @ (weights[:, None] * model)
    curvature += weight * np.diag(model.T @ weights)
    right = model.T @ (weights * (problem.real @ problem.targets))
    eigenvalues, basis = np.linalg.eigh(curvature)
    tolerance = _RANK_TOLERANCE * np.abs(eigenvalues).max()
    flat = np.abs(eigenvalues) <= tolerance
    slope = np.abs(basis[:, flat].T @ right)
    if eigenvalues.min() < -tolerance or np.any(slope > tolerance):
        return ValueMinimisers(None, np.zeros((len(right), 0)))
    kept = basis[:, ~flat]
    return ValueMinimisers(kept @ ((kept.T @ right) / eigenvalues[~flat]), basis[:, flat])


def value_floor(problem: ValueProblem, target: Target) -> float:
    """The smallest target loss of any table V: 0 state by state, where V = y; by projection else.

    Several start states that the model maps to the same state leave a mean error that no V removes.
    """
    if target == "state":
        return 0.0
    root = np.sqrt(problem.weights)
    design, right = root[:, None] * problem.model, root * (problem.real @ problem.targets)
    left, singular, _ = np.linalg.svd(design)
    range_ = left[:, : len(singular)][:, singular > _RANK_TOLERANCE * singular[0]]
    return float(np.sum((right - range_ @ (range_.T @ right)) ** 2))


def value_excess(
    problems: Sequence[ValueProblem], found: Sequence[ValueMinimisers], target: Target
) -> Float[np.ndarray, " problems"]:
    """Supremum of the target loss over each set of minimisers, minus the class floor.

    Args:
        problems: the value losses.
        found: the minimisers of each.
        target: which of the two target losses.

    Returns:
        The excess of each; infinite if there is no minimiser, or if a free direction changes the
        target.
    """
    excess = np.full(len(problems), np.inf)
    bounded = [i for i in range(len(problems)) if _is_bounded(problems[i], found[i], target)]
    if not bounded:
        return excess
    sizes = [len(problems[i].targets) for i in bounded]
    rows, weights = Rows(*np.zeros((4, sum(sizes), max(sizes)))), []
    stops = [int(stop) for stop in np.cumsum(sizes)]
    for i, n, stop in zip(bounded, sizes, stops, strict=True):
        p_model, p_true, weight = _target_map(problems[i], target)
        for filled, array in zip(
            rows, (p_model, p_true, found[i].values, problems[i].targets), strict=True
        ):
            filled[stop - n : stop, :n] = array
        weights.append(weight)
    losses = np.concatenate(weights) * target_losses(rows)
    totals = np.add.reduceat(losses, [0, *stops[:-1]])
    excess[bounded] = totals - [value_floor(problems[i], target) for i in bounded]
    return excess


def _target_map(
    problem: ValueProblem, target: Target
) -> tuple[Float[np.ndarray, "n n"], Float[np.ndarray, "n n"], Float[np.ndarray, " n"]]:
    """Who predicts and who answers in the target loss, and the weights of its rows."""
    if target == "mean":
        return problem.model, problem.real, problem.weights
    states = np.eye(len(problem.targets))
    return states, states, problem.model.T @ problem.weights


def _is_bounded(problem: ValueProblem, found: ValueMinimisers, target: Target) -> bool:
    """Whether the target loss is bounded on the set of minimisers."""
    p_model, _, weights = _target_map(problem, target)
    moved = np.abs(p_model[weights > 0] @ found.free)
    return found.values is not None and not np.any(moved > np.sqrt(_RANK_TOLERANCE))


def value_fixed_point(
    kernel: Float[np.ndarray, "n n"],
    rewards: Float[np.ndarray, " n"],
    weights: Float[np.ndarray, " n"],
    discount: float,
    k: int,
    correction: Correction,
) -> Float[np.ndarray, " n"]:
    """Where MuZero's value update ends if V_tar = V and the model is the true kernel, m = b = 1.

    With S the map from targets to the minimiser of least norm, `V = S (r + γ P V)`.

    Args:
        kernel: P, the environment and the model.
        rewards: r.
        weights: distribution of the start state.
        discount: γ.
        k: number of model samples.
        correction: "none" or "unbiased"; the printed one has no minimiser.

    Returns:
        The fixed point; the true value function only where S is the identity.
    """
    n = len(rewards)
    smooth = np.empty((n, n))
    for x in range(n):
        found = value_minimisers(ValueProblem(kernel, kernel, np.eye(n)[x], weights), k, correction)
        if found.values is None:
            raise UserError(f"the correction {correction!r} with k = {k} has no minimiser here")
        smooth[:, x] = found.values
    return np.linalg.solve(np.eye(n) - discount * smooth @ kernel, smooth @ rewards)


def value_gradient(
    problem: ValueProblem, values: Float[np.ndarray, " n"], k: int, correction: Correction
) -> Float[np.ndarray, " n"]:
    """Gradient of the expected loss with respect to V, by differentiating `expected_vaml_loss`.

    Args:
        problem: the value loss.
        values: where to differentiate.
        k: number of model samples.
        correction: which variance estimator is subtracted.

    Returns:
        The gradient, which is zero exactly at the minimisers of a convex loss.
    """
    n = len(values)
    width = 10 * -(-n // 10)  # few shapes to compile; a state of weight and probability 0 is inert
    square = np.zeros((2, width, width))
    square[:, :n, :n] = problem.model, problem.real
    vectors = np.zeros((3, width))
    vectors[:, :n] = problem.targets, problem.weights, values
    with jax.enable_x64(True):
        gradient = _gradient(k, correction)(*map(jnp.asarray, (*square, *vectors)))
        return np.asarray(gradient)[:n]


@functools.cache
def _gradient(k: int, correction: Correction) -> Callable[..., Float[Array, " n"]]:
    """The compiled gradient of one k and correction."""

    def loss(
        model: Float[Array, "n n"],
        real: Float[Array, "n n"],
        targets: Float[Array, " n"],
        weights: Float[Array, " n"],
        values: Float[Array, " n"],
    ) -> Float[Array, ""]:
        losses = jax.vmap(lambda p, q: expected_vaml_loss(p, q, values, k, correction, targets))(
            model, real
        )
        return jnp.dot(weights, losses)

    return jax.jit(jax.grad(loss, argnums=4))
