"""The package's own losses on many rows at once, in float64.

A row is one start state: the model's and the environment's distribution of the m-th state, V and
the targets y. Everything `cvaml.calibration` says about a loss goes through these two functions,
so it is said about `cvaml.losses` and not about a copy.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from cvaml.losses import Correction, expected_vaml_loss, itervaml_loss

# Two compiled shapes per loss: rows come in blocks, states are padded with probability 0.
_SMALL_BLOCK, _BLOCK = 64, 4096
_PAD = 10


class Rows(NamedTuple):
    """Many start states, padded to the same number of states with probability 0."""

    p_model: Float[np.ndarray, "rows n"]
    """The model's distribution of the m-th state."""
    p_true: Float[np.ndarray, "rows n"]
    """The environment's."""
    values: Float[np.ndarray, "rows n"]
    """V of each state, on the model's side."""
    targets: Float[np.ndarray, "rows n"]
    """y of each state, on the environment's side."""


def surrogate_losses(rows: Rows, k: int, correction: Correction) -> Float[np.ndarray, " rows"]:
    """The expected k-sample loss of each row, see `expected_vaml_loss`.

    Args:
        rows: the start states.
        k: number of model samples.
        correction: which variance estimator is subtracted.

    Returns:
        One loss per row.
    """
    return _in_blocks(_surrogate(k, correction), rows)


def target_losses(rows: Rows) -> Float[np.ndarray, " rows"]:
    """The loss that the surrogate stands for, `(E_model V - E_true y)²`, equation 1.

    Args:
        rows: the start states.

    Returns:
        One loss per row.
    """
    return _in_blocks(_target(), rows)


@functools.cache
def _surrogate(k: int, correction: Correction) -> Callable[..., Float[Array, " rows"]]:
    """The compiled surrogate of one k and correction."""

    def row(p: Array, q: Array, v: Array, y: Array) -> Float[Array, ""]:
        return expected_vaml_loss(p, q, v, k, correction, y)

    return jax.jit(jax.vmap(row))


@functools.cache
def _target() -> Callable[..., Float[Array, " rows"]]:
    """The compiled target loss."""

    def row(p: Array, q: Array, v: Array, y: Array) -> Float[Array, ""]:
        # IterVAML on the disjoint union of model states, valued V, and real states, valued y.
        none = jnp.zeros_like(p)
        return itervaml_loss(
            jnp.concatenate([p, none]), jnp.concatenate([none, q]), jnp.concatenate([v, y])
        )

    return jax.jit(jax.vmap(row))


def _in_blocks(
    function: Callable[..., Float[Array, " rows"]], arrays: Rows
) -> Float[np.ndarray, " rows"]:
    """Applies a compiled row function block by block, so that few shapes are ever compiled."""
    rows, n = arrays.p_model.shape
    width = _PAD * -(-n // _PAD)
    size = _SMALL_BLOCK if rows <= _SMALL_BLOCK else _BLOCK
    results = np.empty(rows)
    with jax.enable_x64(True):
        for start in range(0, rows, size):
            stop = min(start + size, rows)
            block = np.zeros((len(arrays), size, width))
            for filled, array in zip(block, arrays, strict=True):
                filled[: stop - start, :n] = array[start:stop]
            results[start:stop] = np.asarray(function(*block))[: stop - start]
    return results
