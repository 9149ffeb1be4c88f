"""Training a model and a value together: one loop for every variant, vmapped over problems."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from cvaml.tabular.lowrank import LowRank
from cvaml.tabular.objective import Coefficients, Problem, Rule, Scalar

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


class Steps(NamedTuple):
    """Step sizes of one fit, as data."""

    model: Scalar
    """Step of Adam for the model."""
    value: Scalar
    """Step α of the value updates."""
    final: Scalar
    """What is left of both steps at the last one; 1 keeps them constant."""
    total: Scalar
    """Number of steps after which the decay ends."""


class Task(NamedTuple):
    """Everything that stays fixed during one fit."""

    problem: Problem
    numbers: Coefficients
    steps: Steps
    seed: Int[Any, ""] | int
    """Seed of the draws of a sampled rule."""


class FitState(NamedTuple):
    """Model and value under training."""

    model: LowRank
    values: Float[Any, " n"]
    first: LowRank
    """Adam's running mean of the gradient."""
    second: LowRank
    """Adam's running mean of its square."""
    step: Int[Any, ""]
    """Steps done."""


class Movement(NamedTuple):
    """What a window of steps did, for the convergence criterion."""

    change: Float[Array, ""]
    """Largest change of V over the window, in units of the spread of V over the states."""
    finite: Bool[Array, ""]
    """Whether V is still finite."""


def init_fit(model: LowRank, states: int) -> FitState:
    """The start: a drawn model, V = 0, no moments."""
    zeros = LowRank(np.zeros_like(model.phi), np.zeros_like(model.psi))
    return FitState(model, np.zeros(states, model.phi.dtype), zeros, zeros, np.int32(0))


def fit_step(rule: Rule, task: Task, state: FitState) -> FitState:
    r"""One step of everything at once.

    The model follows Adam. V follows the variant: the model-based TD update
    $V \leftarrow V + \alpha(r + \gamma \hat P V - V)$, the gradient of the value-aware loss, or
    both. That gradient has curvature 2·visits in each state, which divides it.

    Args:
        rule: where the gradients come from.
        task: problem, variant and step sizes.
        state: model, value and moments.

    Returns:
        The next state.
    """
    problem, numbers, steps, seed = task
    key = jax.random.fold_in(jax.random.key(seed), state.step)
    gradients = rule(numbers, state.model, state.values, problem, key)
    now = state.step + 1
    decay = 1 - (1 - steps.final) * jnp.minimum(state.step / steps.total, 1)

    first = jax.tree.map(lambda m, g: BETA1 * m + (1 - BETA1) * g, state.first, gradients.model)
    second = jax.tree.map(
        lambda s, g: BETA2 * s + (1 - BETA2) * jnp.square(g), state.second, gradients.model
    )
    size = decay * steps.model / (1 - BETA1**now)
    unbias = 1 / (1 - BETA2**now)
    model = jax.tree.map(
        lambda x, m, s: x - size * m / (jnp.sqrt(unbias * s) + EPSILON), state.model, first, second
    )
    q = problem.rewards + problem.discount * gradients.means
    td = jnp.sum(problem.policy * q.reshape(problem.policy.shape), axis=1) - state.values
    descent = 0.5 * gradients.values / jnp.maximum(gradients.visits, 1)
    values = state.values + decay * steps.value * (numbers.td * td - descent)
    return FitState(model, problem.continues * values, first, second, now)


def advance(rule: Rule, task: Task, state: FitState, window: int) -> tuple[FitState, Movement]:
    """A window of steps of one fit.

    Args:
        rule: where the gradients come from.
        task: problem, variant and step sizes.
        state: where to start; warm starts continue its moments.
        window: number of steps.

    Returns:
        The state after them and what moved.
    """
    after = jax.lax.fori_loop(0, window, lambda _, s: fit_step(rule, task, s), state)
    moved = jnp.max(jnp.abs(after.values - state.values))
    spread = jnp.std(after.values)
    change = moved / jnp.where(spread > 0, spread, 1)
    return after, Movement(change, jnp.all(jnp.isfinite(after.values)))


# One thread a program: a step is too small to split, and both cores run a block of their own.
@partial(
    jax.jit,
    static_argnames=("rule", "window"),
    compiler_options={"xla_cpu_multi_thread_eigen": False},
)
def advance_block(
    rule: Rule, tasks: Task, states: FitState, window: int
) -> tuple[FitState, Movement]:
    """`advance` for a block of fits: every array has a leading axis."""
    return jax.vmap(lambda task, state: advance(rule, task, state, window))(tasks, states)
