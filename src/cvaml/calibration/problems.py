"""Finite problems to minimise losses on, and how random ones are drawn."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from cvaml.calibration.checks import check_discount, check_distribution, check_finite
from cvaml.types import UserError

Environment = Literal["stochastic", "deterministic"]
Kind = Literal["full", "deficient", "subset", "equivalent"]
"""`full`: kernel of full rank, every state weighted; `deficient`: kernel of lower rank;
`subset`: kernel of full rank, weights on some of the states only; `equivalent`: a deterministic
model f with `y(f(x)) = (P y)(x)` exists, y the one-step targets."""

KINDS: dict[Environment, tuple[Kind, ...]] = {
    "stochastic": ("full", "deficient", "subset", "equivalent"),
    "deterministic": ("full", "deficient", "subset"),  # each is its own equivalent model
}

MIN_STATES, MAX_STATES = 3, 10
_DISCOUNT = 0.9


@dataclass(frozen=True)
class Problem:
    """A finite MDP under a fixed policy, a value function and weights of the start states."""

    kernel: Float[np.ndarray, "n n"]
    """Row x is the distribution of the next state."""
    rewards: Float[np.ndarray, " n"]
    """Reward on leaving a state."""
    values: Float[np.ndarray, " n"]
    """V, which is also the target function V_tar."""
    weights: Float[np.ndarray, " n"]
    """Distribution of the start state."""
    discount: float
    """γ in [0, 1)."""

    def __post_init__(self) -> None:
        check_distribution("kernel", self.kernel)
        check_distribution("weights", self.weights)
        check_finite("rewards", self.rewards)
        check_finite("values", self.values)
        check_discount(self.discount)

    @property
    def states(self) -> int:
        """Number of states."""
        return len(self.rewards)

    def targets(self, b: int) -> Float[np.ndarray, " n"]:
        """The b-step Bellman operator applied to V, `[T^b V](x)`; V itself for b = 0."""
        targets = self.values
        for _ in range(b):
            targets = self.rewards + self.discount * self.kernel @ targets
        return targets

    def steps(self, m: int) -> Float[np.ndarray, "n n"]:
        """The m-step kernel; the identity for m = 0, which is what makes TD a member."""
        return np.linalg.matrix_power(self.kernel, m)


def draw_problem(
    generator: np.random.Generator, environment: Environment, kind: Kind, states: int | None = None
) -> Problem:
    """A random problem: standard normal rewards and values, γ = 0.9.

    Args:
        generator: source of randomness; the call advances it.
        environment: Dirichlet rows, or one successor per state.
        kind: rank of the kernel and support of the weights, see `Kind`.
        states: number of states; drawn from 3 to 10 when not given.

    Returns:
        The problem.
    """
    if environment not in KINDS:
        raise UserError(f"unknown environment {environment!r}; allowed are {', '.join(KINDS)}")
    if kind not in KINDS[environment]:
        allowed = ", ".join(KINDS[environment])
        raise UserError(f"unknown kind {kind!r} for a {environment} one; allowed are {allowed}")
    n = int(generator.integers(MIN_STATES, MAX_STATES + 1)) if states is None else states
    rank = n - 1 - int(generator.integers(0, n - 1)) if kind == "deficient" else n
    kernel = (_dirichlet_kernel if environment == "stochastic" else _map_kernel)(generator, n, rank)
    weights = generator.dirichlet(np.ones(n))
    if kind == "subset":
        dropped = generator.choice(n, size=int(generator.integers(1, n - 1)), replace=False)
        weights[dropped] = 0
        weights /= weights.sum()
    rewards, values = generator.normal(size=n), generator.normal(size=n)
    if kind == "equivalent":
        targets = rewards
        kernel = _centred_kernel(generator, targets)
        rewards = targets - _DISCOUNT * kernel @ values
    return Problem(kernel, rewards, values, weights, _DISCOUNT)


def _dirichlet_kernel(
    generator: np.random.Generator, n: int, rank: int
) -> Float[np.ndarray, "n n"]:
    """A stochastic kernel of that rank: states fall into `rank` clusters, softly if rank < n."""
    rows = generator.dirichlet(np.ones(n), size=rank)
    if rank == n:
        return rows
    kernel = generator.dirichlet(np.ones(rank), size=n) @ rows
    return np.asarray(kernel / kernel.sum(axis=1, keepdims=True))


def _map_kernel(generator: np.random.Generator, n: int, rank: int) -> Float[np.ndarray, "n n"]:
    """A deterministic kernel whose map has `rank` different successors."""
    image = generator.permutation(n)[:rank]
    # every successor is used at least once, so the rank is exact
    successors = np.concatenate([image, generator.choice(image, size=n - rank)])
    return np.asarray(np.eye(n)[generator.permutation(successors)])


def _centred_kernel(
    generator: np.random.Generator, targets: Float[np.ndarray, " n"]
) -> Float[np.ndarray, "n n"]:
    """A stochastic kernel under which each row's mean of `targets` is the target of a state."""
    order = np.argsort(targets)
    kernel = np.zeros((len(targets), len(targets)))
    for row in kernel:
        middle = int(generator.integers(1, len(order) - 1))
        centre, below, above = targets[order[middle]], order[:middle], order[middle + 1 :]
        low = generator.dirichlet(np.ones(len(below)))
        high = generator.dirichlet(np.ones(len(above)))
        fall, rise = centre - low @ targets[below], high @ targets[above] - centre
        spread = generator.uniform(0.2, 1)
        row[below] = spread * low * rise / (fall + rise)
        row[above] = spread * high * fall / (fall + rise)
        row[order[middle]] = 1 - spread
    return kernel
