"""Proposition 3.1 built: a deterministic value-equivalent model on compact intervals.

A continuous kernel on an interval, a continuous encoding φ and a continuous, non-monotone V: by the
intermediate value theorem some latent state has exactly the expected value, and the first such
state is a measurable choice. All integrals are quadratures.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy import optimize

from cvaml.losses import vaml_loss

Points = Float[np.ndarray, " _"]
Rule = tuple[Points, Points]
"""Nodes and probabilities of a quadrature."""

_GRID = 4001


@dataclass(frozen=True)
class CompactProblem:
    """A Markov chain on [0, 1], seen through an encoding, valued in the latent space."""

    name: str
    """Kernel, encoding and value function, for tables."""
    kernel: Callable[[float, int], Rule]
    """`kernel(x, n)`: an n-node quadrature of the distribution of x'."""
    encode: Callable[[Points], Points]
    """φ, continuous and strictly monotone."""
    value: Callable[[Points], Points]
    """V on the latent interval, continuous."""

    def expected_value(self, x: float, nodes: int) -> float:
        """`E[V(φ(x'))]` by quadrature."""
        points, probabilities = self.kernel(x, nodes)
        return float(probabilities @ self.value(self.encode(points)))


def deterministic_model(problem: CompactProblem, x: float, nodes: int = 200) -> float:
    """f*(φ(x)): the first latent state whose value is the expected next value.

    Args:
        problem: the chain.
        x: the state.
        nodes: nodes of the quadrature.

    Returns:
        A latent state z' with `V(z') = E[V(φ(x'))]`.
    """
    wanted = problem.expected_value(x, nodes)
    latent = problem.encode(np.linspace(0, 1, _GRID))
    error = problem.value(latent) - wanted
    crossing = np.flatnonzero(error[:-1] * error[1:] <= 0)
    if not crossing.size:  # an extreme of V between two grid points
        return float(latent[np.abs(error).argmin()])
    left, right = latent[crossing[0]], latent[crossing[0] + 1]
    difference = lambda z: float(problem.value(np.array([z]))[0]) - wanted  # noqa: E731
    return float(optimize.brentq(difference, left, right, xtol=1e-15, rtol=1e-14))


class CompactNumbers(NamedTuple):
    """Proposition 3.1 on one problem."""

    x: Points
    """States of the checks."""
    expected: Points
    """`E[V(φ(x'))]` at each, by a finer quadrature than the model was built with."""
    predicted: Points
    """`V(f*(φ(x)))`."""
    two_step_expected: Points
    """`E[V(φ(x''))]`."""
    two_step_predicted: Points
    """`V(f*(f*(φ(x))))`."""
    loss_gap: Float[np.ndarray, " distributions"]
    """Expected sampled loss at f* minus its floor, `E Var V`, for each state distribution."""
    loss_floor: Float[np.ndarray, " distributions"]
    """That floor."""

    @property
    def gap(self) -> float:
        """Largest `|V(f*(φ(x))) - E V|`."""
        return float(np.abs(self.predicted - self.expected).max())

    @property
    def two_step_gap(self) -> float:
        """Largest `|V(f*(f*(φ(x)))) - E V(x'')|`."""
        return float(np.abs(self.two_step_predicted - self.two_step_expected).max())


def compact_numbers(problem: CompactProblem, nodes: int = 200, states: int = 33) -> CompactNumbers:
    """Builds f* and checks every statement of Proposition 3.1.

    Args:
        problem: the chain.
        nodes: nodes of the quadrature that f* is built with; checks use another rule.
        states: states at which f* is checked, the ends of the interval besides.

    Returns:
        The numbers.
    """
    inner, uniform = _gauss_legendre(states)
    x = np.concatenate([[0.0], inner, [1.0]])
    latent = np.array([deterministic_model(problem, point, nodes) for point in x])
    finer = 2 * nodes + 1
    expected = np.array([problem.expected_value(point, finer) for point in x])
    two_step_expected = np.empty_like(x)
    for i, point in enumerate(x):
        after, probabilities = problem.kernel(point, 65)
        values = [problem.expected_value(y, 65) for y in after]
        two_step_expected[i] = probabilities @ np.array(values)
    decoded = _decode(problem, latent)
    again = np.array([deterministic_model(problem, point, nodes) for point in decoded])
    distributions = np.array([uniform, uniform * inner * (1 - inner) ** 4])  # and Beta(2, 5)
    distributions /= distributions.sum(axis=1, keepdims=True)
    predicted = problem.value(latent)
    rules = [problem.kernel(point, finer) for point in inner]
    loss, variance = _sampled_loss(problem, predicted[1:-1], rules)
    floor = distributions @ variance
    return CompactNumbers(
        x=x,
        expected=expected,
        predicted=predicted,
        two_step_expected=two_step_expected,
        two_step_predicted=problem.value(again),
        loss_gap=distributions @ loss - floor,
        loss_floor=floor,
    )


def compact_problems() -> list[CompactProblem]:
    """Four kernels × two encodings × two value functions, none of them monotone."""
    kernels: dict[str, Callable[[float, int], Rule]] = {
        "beta": _beta_kernel,
        "truncated normal": _normal_kernel,
        "uniform window": _window_kernel,
        "two points": _two_point_kernel,
    }
    encodings: dict[str, Callable[[Points], Points]] = {
        "x + x³": lambda x: x + x**3,
        "exp(-x)": lambda x: np.exp(-x),
    }
    values: dict[str, Callable[[Points], Points]] = {
        "sin(4z) + z/2": lambda z: np.sin(4 * z) + z / 2,
        "(z - 0.8)²": lambda z: (z - 0.8) ** 2,
    }
    return [
        CompactProblem(f"{kernel}; φ = {encoding}; V = {value}", rule, encode, v)
        for kernel, rule in kernels.items()
        for encoding, encode in encodings.items()
        for value, v in values.items()
    ]


def _sampled_loss(
    problem: CompactProblem, predicted: Points, rules: list[Rule]
) -> tuple[Points, Points]:
    """Expected one-sample loss of predictions, and its floor, at each state."""
    losses, floors = np.empty_like(predicted), np.empty_like(predicted)
    for i, (points, probabilities) in enumerate(rules):
        targets = problem.value(problem.encode(points))
        with jax.enable_x64(True):
            sampled = _loss_of_targets(jnp.asarray(predicted[i : i + 1]), jnp.asarray(targets))
            losses[i] = probabilities @ np.asarray(sampled)
        floors[i] = probabilities @ (targets - probabilities @ targets) ** 2
    return losses, floors


@jax.jit
def _loss_of_targets(
    prediction: Float[Array, " 1"], targets: Float[Array, " nodes"]
) -> Float[Array, " nodes"]:
    """The package's sampled loss of one deterministic prediction against many targets."""
    return jax.vmap(vaml_loss, in_axes=(None, 0))(prediction, targets)


def _decode(problem: CompactProblem, latent: Points) -> Points:
    """φ⁻¹ by bisection."""
    return np.array(
        [
            optimize.brentq(lambda x, z=z: float(problem.encode(np.array([x]))[0]) - z, 0, 1)
            for z in np.clip(latent, *np.sort(problem.encode(np.array([0.0, 1.0]))))
        ]
    )


@functools.cache
def _gauss_legendre(nodes: int) -> Rule:
    """Gauss-Legendre nodes and probabilities on [0, 1]."""
    points, weights = np.polynomial.legendre.leggauss(nodes)
    return (points + 1) / 2, weights / 2


def _of_density(density: Callable[[Points], Points], nodes: int) -> Rule:
    points, weights = _gauss_legendre(nodes)
    probabilities = weights * density(points)
    return points, probabilities / probabilities.sum()


def _beta_kernel(x: float, nodes: int) -> Rule:
    return _of_density(lambda y: y ** (1 + 5 * x) * (1 - y) ** (6 - 5 * x), nodes)


def _normal_kernel(x: float, nodes: int) -> Rule:
    return _of_density(lambda y: np.exp(-0.5 * ((y - (1 - x) ** 2) / 0.2) ** 2), nodes)


def _window_kernel(x: float, nodes: int) -> Rule:
    points, probabilities = _gauss_legendre(nodes)
    return 0.5 * x + 0.5 * points, probabilities


def _two_point_kernel(x: float, nodes: int) -> Rule:
    """Weakly continuous without a density: up with probability 1/4 + x/2, else down."""
    del nodes
    return np.array([0.6 * x, 0.4 + 0.6 * x]), np.array([0.75 - 0.5 * x, 0.25 + 0.5 * x])
