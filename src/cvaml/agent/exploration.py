"""Exploration noise that keeps its direction for a while: a pure function of key and step.

Noise that is drawn anew at every step cancels itself in anything heavier than a joint. Nothing is
carried from step to step, so there is nothing to reset, shard or keep in a checkpoint.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray


def slow_noise(
    key: PRNGKeyArray, step: Int[Array, ""], period: Float[Array, ""], size: int
) -> Float[Array, " a"]:
    """Standard normal numbers that turn into others over `period` steps.

    Knots `period` steps apart are independent. In between, their mixture with weights cos and sin
    of a quarter turn is standard normal too, at every step.

    Args:
        key: of the whole sequence.
        step: where in the sequence.
        period: steps between knots, at least 1; with 1, all steps are independent.
        size: numbers, each a sequence of its own.

    Returns:
        The numbers of this step.
    """
    place = step / period
    knot = jnp.floor(place)
    angle = (place - knot) * (jnp.pi / 2)
    first = knot.astype(jnp.int32)
    before, after = (
        jax.random.normal(jax.random.fold_in(key, first + later), (size,)) for later in (0, 1)
    )
    return jnp.cos(angle) * before + jnp.sin(angle) * after


def as_uniform(normal: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """Standard normal numbers as numbers uniform in [-1, 1], in the same order."""
    return jax.lax.erf(normal * 2**-0.5)
