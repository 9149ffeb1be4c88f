"""What a loss can update: where the gradients of the package's losses arrive."""

import functools
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from cvaml.calibration.problems import MAX_STATES, Problem
from cvaml.losses import expected_vaml_loss, itervaml_loss, td_loss

LossName = Literal["itervaml", "muzero", "td"]


def update_norms(problem: Problem, loss: LossName) -> tuple[float, float]:
    """Norms of a loss's gradient with respect to the model and to the value function.

    Evaluated at a uniform model, which no problem's kernel equals; the model's gradient is taken
    along the simplex, so that a constant, which changes no distribution, does not count.

    Args:
        problem: a problem of at most 10 states.
        loss: the column of Table 1, with m = b = 1 where these apply.

    Returns:
        The norm that reaches the model and the norm that reaches V.
    """
    n = problem.states
    square, vectors = np.zeros((2, MAX_STATES, MAX_STATES)), np.zeros((4, MAX_STATES))
    square[0, :n, :n], square[1, :n, :n] = 1 / n, problem.kernel
    vectors[:, :n] = problem.values, problem.rewards, problem.targets(1), problem.weights
    with jax.enable_x64(True):
        arrays = map(jnp.asarray, (*square, *vectors))
        model, values = map(np.asarray, _gradients(loss)(*arrays, jnp.asarray(problem.discount)))
    along = model[:n, :n] - model[:n, :n].mean(axis=1, keepdims=True)
    return float(np.linalg.norm(along)), float(np.linalg.norm(values[:n]))


@functools.cache
def _gradients(loss: LossName) -> Callable[..., tuple[Array, Array]]:
    """The compiled gradients of one loss with respect to the model and to V."""

    def expected(
        model: Float[Array, "n n"],
        kernel: Float[Array, "n n"],
        values: Float[Array, " n"],
        rewards: Float[Array, " n"],
        targets: Float[Array, " n"],
        weights: Float[Array, " n"],
        discount: Float[Array, ""],
    ) -> Float[Array, ""]:
        def td_from(
            value: Float[Array, ""], reward: Float[Array, ""], successors: Float[Array, " n"]
        ) -> Float[Array, ""]:
            target_values = jax.lax.stop_gradient(values)
            step = jax.vmap(td_loss, in_axes=(None, None, None, 0))
            return jnp.dot(successors, step(value, reward[None], discount[None], target_values))

        if loss == "itervaml":
            losses = jax.vmap(itervaml_loss, in_axes=(0, 0, None))(model, kernel, values)
        elif loss == "muzero":
            losses = jax.vmap(lambda p, q: expected_vaml_loss(p, q, values, 1, "none", targets))(
                model, kernel
            )
        else:
            losses = jax.vmap(td_from)(values, rewards, kernel)
        return jnp.dot(weights, losses)

    return jax.jit(jax.grad(expected, argnums=(0, 2)))
