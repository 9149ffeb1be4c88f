"""What a variant minimises on a finite problem, and the gradient of it.

Two ways to the same numbers. `autodiff(variant)` differentiates `variant.expected`, whatever
function that is. `fast_gradients` is the closed form for `expected_vaml_loss` with one model
step: the variant enters as a handful of numbers, so all variants share one compiled program.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from cvaml.losses import Variant, expected_vaml_loss, variance_weight
from cvaml.tabular.lowrank import LowRank, kernel, log_kernel
from cvaml.tabular.mdp import FiniteMDP, uniform_policy

Scalar = Float[Any, ""] | float


class Problem(NamedTuple):
    """Policy evaluation on a finite MDP, as arrays; row `x * a + action` is a state and action."""

    kernel: Float[Any, "rows n"]
    """True distribution of the next state of each row."""
    rewards: Float[Any, " rows"]
    """Expected reward of each row."""
    policy: Float[Any, "n a"]
    """Probability of each action under the policy that is evaluated."""
    continues: Float[Any, " n"]
    """1 for an ordinary state, 0 for a terminal one, whose value stays 0."""
    discount: Scalar
    """γ."""


def as_problem(mdp: FiniteMDP, policy: Float[np.ndarray, "n a"] | None = None) -> Problem:
    """The arrays of an MDP and a policy (uniform when not given), in float32 of NumPy."""
    policy = uniform_policy(mdp) if policy is None else policy
    rows = mdp.states * mdp.actions
    return Problem(
        kernel=mdp.transitions.reshape(rows, -1).astype(np.float32),
        rewards=mdp.rewards.reshape(rows).astype(np.float32),
        policy=policy.astype(np.float32),
        continues=mdp.continues.astype(np.float32),
        discount=np.float32(mdp.discount),
    )


class Coefficients(NamedTuple):
    """A variant as numbers."""

    kl: Scalar
    """Weight of KL(P || model)."""
    value: Scalar
    """Weight of the value-aware loss."""
    variance: Scalar
    """Weight c of the model's value variance inside it."""
    rewards: Scalar
    """b: 0 compares with V of the next state, 1 with its Bellman backup."""
    trains_value: Scalar
    """1 if the value-aware loss also moves V."""
    td: Scalar
    """1 if a model-based TD update moves V."""


def coefficients(variant: Variant) -> Coefficients:
    """The numbers of a variant in `expected_vaml_loss`."""
    values = (
        variant.kl,
        float(variant.expected is not None),
        0.0 if variant.expected is None else variance_weight(variant.k, variant.correction),
        variant.b,
        variant.trains_value,
        variant.td,
    )
    return Coefficients(*(np.float32(value) for value in values))


class Gradients(NamedTuple):
    """What one step needs to know at the current model and value."""

    model: LowRank
    """Gradient of the objective, summed over the rows."""
    values: Float[Array, " n"]
    """Gradient of the objective with respect to V; 0 where the variant does not train V."""
    visits: Float[Array, " n"]
    """How often the model's m-step prediction from all rows lands in each state."""
    means: Float[Array, " rows"]
    """E V of the next state under the model, for the TD update."""


Rule = Callable[[Coefficients, LowRank, Float[Array, " n"], Problem, PRNGKeyArray], Gradients]
"""(coefficients, model, V, problem, key) -> Gradients."""


def backup(problem: Problem, ahead: Float[Array, " rows"]) -> Float[Array, " n"]:
    """The policy's Bellman backup `E_a[r + γ ahead]` of each state, 0 in terminal states."""
    q = problem.rewards + problem.discount * ahead
    expected = jnp.sum(problem.policy * q.reshape(problem.policy.shape), axis=1)
    return jnp.asarray(problem.continues * expected)


def value_aware_targets(problem: Problem, values: Float[Array, " n"], b: int) -> Float[Array, " n"]:
    """`[T^b V](x)` of each state, without a gradient."""
    for _ in range(b):
        values = backup(problem, problem.kernel @ values)
    return jax.lax.stop_gradient(values)


def exact_objective(
    variant: Variant, model: LowRank, values: Float[Array, " n"], problem: Problem
) -> Float[Array, ""]:
    """The objective of a variant, summed over the rows.

    Args:
        variant: what is trained; its `expected` is evaluated on every row.
        model: the low-rank model.
        values: V of each state.
        problem: the true kernel, rewards and policy.

    Returns:
        `Σ_rows expected(...) + kl Σ_rows KL(P || model)`.
    """
    total = jnp.zeros((), values.dtype)
    if variant.expected is not None:
        online = values if variant.trains_value else jax.lax.stop_gradient(values)
        targets = value_aware_targets(problem, values, variant.b)
        p_model = _ahead(kernel(model), problem, variant.m)
        p_true = _ahead(problem.kernel, problem, variant.m)
        expected = variant.expected

        def row_loss(p: Float[Array, " n"], true: Float[Array, " n"]) -> Float[Array, ""]:
            return expected(p, true, online, variant.k, variant.correction, targets)

        total += jnp.sum(jax.vmap(row_loss)(p_model, p_true))
    if variant.kl:
        entropy = jax.scipy.special.xlogy(problem.kernel, problem.kernel)
        total += variant.kl * jnp.sum(entropy - problem.kernel * log_kernel(model))
    return total


@cache
def autodiff(variant: Variant) -> Rule:
    """The rule that differentiates `exact_objective`: any loss, any number of steps."""

    def rule(
        _: Coefficients,
        model: LowRank,
        values: Float[Array, " n"],
        problem: Problem,
        key: PRNGKeyArray,
    ) -> Gradients:
        of_model, of_values = jax.grad(exact_objective, argnums=(1, 2))(
            variant, model, values, problem
        )
        p = kernel(model)
        visits = jnp.sum(_ahead(p, problem, variant.m), axis=0)
        return Gradients(of_model, of_values, visits, p @ values)

    return rule


def has_fast_path(variant: Variant) -> bool:
    """Whether `fast_gradients` is the gradient of this variant's objective."""
    known = variant.expected is None or variant.expected is expected_vaml_loss
    return known and variant.m == 1 and variant.b <= 1


def fast_gradients(
    numbers: Coefficients,
    model: LowRank,
    values: Float[Array, " n"],
    problem: Problem,
    key: PRNGKeyArray,
) -> Gradients:
    r"""The gradient of `exact_objective` in closed form, for one model step and b of 0 or 1.

    With $\mu_l = \sum_i p_{li} V_i$, $m_l = \sum_i P_{li} y_i$ and
    $a_l = 2(\mu_l - m_l) - 2c\mu_l$, the gradient with respect to the logits is
    $$p_{li}\bigl[a_l V_i + cV_i^2 - \textstyle\sum_h p_{lh}(a_l V_h + cV_h^2)\bigr]
      + \kappa(p_{li} - P_{li})$$

    Args:
        numbers: the variant.
        model: the low-rank model.
        values: V of each state.
        problem: the true kernel, rewards and policy.
        key: not used; sampled rules draw with it.

    Returns:
        The same as `autodiff(variant)` for the variant of these numbers.
    """
    rows = model.psi.T
    if rows.shape[1] > 2:
        # On a CPU a product with a transposed factor is slow from rank 3 on: copy it first.
        rows = jax.lax.optimization_barrier(rows)
    logits = rows @ model.phi
    mass = jnp.exp(logits - jnp.max(logits, axis=1, keepdims=True))
    squares = jnp.square(values)
    scale = 1 / jnp.sum(mass, axis=1)
    means, mean_squares = (mass @ values) * scale, (mass @ squares) * scale
    ahead = backup(problem, problem.kernel @ values)
    targets = jnp.where(numbers.rewards > 0, ahead, values)
    errors = means - problem.kernel @ targets
    c, weight = numbers.variance, numbers.value
    slope = 2 * weight * (errors - c * means)
    curve = weight * c
    level = numbers.kl - slope * means - curve * mean_squares
    # The three row factors carry 1/sum, so that the kernel itself is never formed.
    of_logits = (
        mass
        * (
            (slope * scale)[:, None] * values[None, :]
            + (curve * scale)[:, None] * squares[None, :]
            + (level * scale)[:, None]
        )
        - numbers.kl * problem.kernel
    )
    of_model = LowRank(phi=model.psi @ of_logits, psi=model.phi @ of_logits.T)
    columns = jnp.stack([scale, slope * scale]) @ mass
    visits = columns[0]
    of_values = numbers.trains_value * (columns[1] + 2 * curve * values * visits)
    return Gradients(of_model, of_values, visits, means)


def _ahead(first: Float[Array, "rows n"], problem: Problem, m: int) -> Float[Array, "rows n"]:
    """The distribution after m steps: the row's own, then m - 1 steps of the policy."""
    states, actions = problem.policy.shape
    step = jnp.einsum("xa,xay->xy", problem.policy, first.reshape(states, actions, states))
    ahead = first
    for _ in range(m - 1):
        ahead = ahead @ step
    return ahead
