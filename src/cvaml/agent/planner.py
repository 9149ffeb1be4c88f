"""MPPI: refine a Gaussian over action sequences by the scores of its samples.

Knows no networks: a step function and a value function are all it is given.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from cvaml.agent.config import PlannerConfig

State = TypeVar("State")
Step = Callable[[State, Float[Array, " a"]], tuple[State, Float[Array, ""]]]


class Plan(NamedTuple):
    """The refined distribution over action sequences."""

    mean: Float[Array, "h a"]
    """Weighted mean of the last elites: the greedy plan."""
    std: Float[Array, "h a"]
    """Their standard deviation, within the bounds."""
    entropy: Float[Array, ""]
    """Entropy of the last elites' weights, in nats; log(elites) if the temperature does nothing."""
    spread: Float[Array, ""]
    """Standard deviation of the last elites' scores, in value units."""
    gain: Float[Array, ""]
    """Weighted mean score of the last elites minus the score of the start."""


def score(
    state: State,
    actions: Float[Array, "h a"],
    step: Step[State],
    value: Callable[[State], Float[Array, ""]],
    discount: float,
) -> Float[Array, ""]:
    """Discounted rewards along an action sequence, then the value of the state it leads to."""
    total = jnp.zeros(())
    for t, action in enumerate(actions):  # horizons are 1 to 5
        state, reward = step(state, action)
        total = total + discount**t * reward
    return total + discount ** len(actions) * value(state)


def elite_weights(
    scores: Float[Array, " n"], elites: int, temperature: float
) -> tuple[Float[Array, " n"], Float[Array, ""]]:
    """Softmax over the best scores, zero elsewhere.

    Scores are divided by the elites' standard deviation first, so that the temperature means
    the same whether values are 0.01 or 200. Ties with the last elite are elites too.

    Args:
        scores: of all candidates.
        elites: how many are kept.
        temperature: of the softmax, in standard deviations.

    Returns:
        The weights, which sum to 1, and the standard deviation of the elites' scores.
    """
    best = jax.lax.top_k(scores, elites)[0]
    spread = jnp.std(best)
    # The floor is the rounding error of the scores: below it there is nothing to weigh.
    floor = 1e-7 * jnp.abs(best[0]) + 1e-12
    scaled = (scores - best[0]) / (temperature * jnp.maximum(spread, floor))
    weights = jnp.where(scores >= best[-1], jnp.exp(scaled), 0)
    return weights / jnp.sum(weights), spread


def plan(
    key: PRNGKeyArray,
    state: State,
    start: Float[Array, "h a"],
    step: Step[State],
    value: Callable[[State], Float[Array, ""]],
    discount: float,
    config: PlannerConfig,
) -> Plan:
    """Refines an action sequence.

    Every iteration draws `samples` sequences around the mean, scores them together with the
    start, and refits mean and standard deviation to the elites.

    Args:
        key: all noise is drawn from it at once.
        state: where to plan from.
        start: the first mean, in [-1, 1]; it stays a candidate throughout.
        step: `(state, action) -> (next state, reward)`.
        value: value of a state.
        discount: per step.
        config: sizes and bounds.

    Returns:
        The last distribution.
    """

    @jax.vmap
    def evaluate(actions: Float[Array, "h a"]) -> Float[Array, ""]:
        return score(state, actions, step, value, discount)

    noise = jax.random.normal(key, (config.iterations, config.samples, *start.shape))
    # Kept apart: fused into the first iteration, XLA's GPU compiler (0.10, 0.11) fails on it.
    start_score = jax.lax.optimization_barrier(evaluate(start[None]))

    mean, std = start, jnp.full(start.shape, config.std_max)
    for draws in noise:  # unrolled: a GPU then starts all of it as one graph
        drawn = jnp.clip(mean[None] + std[None] * draws, -1, 1)
        # The start's score never changes, so only the draws are evaluated.
        scores = jnp.concatenate([evaluate(drawn), start_score])
        weights, spread = elite_weights(scores, config.elites, config.temperature)
        # Raw moments, both from one pass over the draws; actions lie in [-1, 1] and std_min is
        # far above what cancels.
        each = weights[:-1, None, None] * drawn
        mean = jnp.sum(each, axis=0) + weights[-1] * start
        square = jnp.sum(each * drawn, axis=0) + weights[-1] * jnp.square(start)
        variance = jnp.maximum(square - jnp.square(mean), 0)
        std = jnp.clip(jnp.sqrt(variance), config.std_min, config.std_max)
    entropy = -jnp.sum(jax.scipy.special.xlogy(weights, weights))
    gain = jnp.dot(weights, scores) - start_score[0]
    return Plan(mean, std, entropy, spread, gain)
