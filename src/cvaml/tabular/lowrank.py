"""The low-rank softmax model of a transition kernel."""

from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float

from cvaml.types import UserError


class LowRank(NamedTuple):
    r"""$\hat p(x_i \mid \text{row } l) = \mathrm{softmax}_i(\varphi_i^\top \psi_l)$.

    A row is a state where there is one action, and the pair (state, action) number
    `state * actions + action` in control.
    """

    phi: Float[Any, "j n"]
    """Features of the next state."""
    psi: Float[Any, "j rows"]
    """Features of the row."""


def log_kernel(model: LowRank) -> Float[Array, "rows n"]:
    """Log-probabilities of the next states of every row."""
    return jax.nn.log_softmax(model.psi.T @ model.phi, axis=-1)


def kernel(model: LowRank) -> Float[Array, "rows n"]:
    """Probabilities of the next states of every row."""
    return jax.nn.softmax(model.psi.T @ model.phi, axis=-1)


def draw_model(
    generator: np.random.Generator, rank: int, states: int, rows: int, spread: float = 0.01
) -> LowRank:
    """A random model; a small spread starts near the uniform kernel, at high entropy.

    Args:
        generator: source of the draw; the call advances it.
        rank: inner dimension j.
        states: number of next states n.
        rows: number of rows.
        spread: standard deviation of the entries.

    Returns:
        Float32 arrays of NumPy.
    """
    check_rank_of_model(rank)
    if not 0 <= spread < np.inf:
        raise UserError(f"the initial spread must be at least 0 and finite, got {spread}")
    phi = spread * generator.standard_normal((rank, states))
    psi = spread * generator.standard_normal((rank, rows))
    return LowRank(phi.astype(np.float32), psi.astype(np.float32))


def check_rank_of_model(rank: int) -> None:
    """Raises UserError unless the rank is at least 1."""
    if rank < 1:
        raise UserError(f"a rank must be at least 1, got {rank}")
