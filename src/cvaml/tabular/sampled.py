"""The sampled objective: k model draws and real successors, with an unbiased gradient."""

from functools import cache

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from cvaml.losses import Variant
from cvaml.tabular.lowrank import LowRank
from cvaml.tabular.objective import Coefficients, Gradients, Problem, Rule, backup
from cvaml.types import UserError


def draw(
    key: PRNGKeyArray, probabilities: Float[Array, "rows n"], count: int
) -> Int[Array, "count rows"]:
    """Draws `count` states from each row by inverting its cumulative distribution.

    Args:
        key: consumed.
        probabilities: one distribution a row.
        count: independent draws of each row.
    """
    rows, states = probabilities.shape
    # A product with a triangle is many times faster than a scan for rows this short.
    cumulative = probabilities @ jnp.triu(jnp.ones((states, states), probabilities.dtype))
    level = jax.random.uniform(key, (count, rows), probabilities.dtype) * cumulative[:, -1][None]
    index = jnp.sum(cumulative[None] <= level[:, :, None], axis=2)
    return jnp.minimum(index, states - 1)


@cache
def sampled(variant: Variant) -> Rule:
    r"""The rule that estimates the gradient of `variant.loss` from draws, without bias.

    Every row draws k next states $\hat x_s$ from the model and one from the environment. The
    model cannot be differentiated through a categorical draw, so the score function is used with
    a leave-one-out baseline: sample s is weighted by how much it changes the loss against the
    mean of the other samples in its place,
    $$\sum_s \bigl[L(v) - L(v \mid v_s := \bar v_{-s})\bigr]\,\nabla \log \hat p(\hat x_s).$$
    The baseline does not depend on sample s, so it adds no bias; for the calibrated loss the
    weight is $\tfrac2k (v_s - \bar v_{-s})(\bar v_{-s} - y)$. With k = 1 there is no baseline.

    Args:
        variant: what is trained; one model step, b of 0 or 1.

    Raises:
        UserError: the variant needs more than one model step or more than one reward.
    """
    if variant.m > 1 or variant.b > 1:
        raise UserError(
            f"the sampled mode needs m = 1 and b of 0 or 1, variant {variant.name!r} has "
            f"m = {variant.m} and b = {variant.b}; use the exact mode"
        )
    loss = variant.loss

    def row_weights(
        v: Float[Array, " k"], target: Float[Array, ""]
    ) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
        """Score weight of each sample, and the gradient of the loss in its value."""
        if loss is None:
            return jnp.zeros_like(v), jnp.zeros_like(v)

        def of(samples: Float[Array, " k"]) -> Float[Array, ""]:
            return loss(samples[:, None], target[None], correction=variant.correction)

        found, slopes = jax.value_and_grad(of)(v)
        if variant.k == 1:
            return found[None], slopes
        others = (jnp.sum(v) - v) / (variant.k - 1)
        own = jnp.eye(variant.k, dtype=bool)
        baselines = jax.vmap(of)(jnp.where(own, others[:, None], v[None, :]))
        return found - baselines, slopes

    def rule(
        _: Coefficients,
        model: LowRank,
        values: Float[Array, " n"],
        problem: Problem,
        key: PRNGKeyArray,
    ) -> Gradients:
        of_model, of_first, of_second = jax.random.split(key, 3)
        p = jax.nn.softmax(model.psi.T @ model.phi, axis=1)
        draws = draw(of_model, p, variant.k)
        first = draw(of_first, problem.kernel, 1)[0]
        targets = values
        if variant.b:
            # One more real step from every row, shared by all that arrive there.
            targets = backup(problem, values[draw(of_second, problem.kernel, 1)[0]])
        v = values[draws]
        weights, slopes = jax.vmap(row_weights, in_axes=(1, 0), out_axes=1)(v, targets[first])
        states = jnp.arange(values.shape[0])
        landed = (draws[:, :, None] == states[None, None]).astype(p.dtype)
        of_logits = jnp.einsum("kl,kli->li", weights, landed) - weights.sum(axis=0)[:, None] * p
        if variant.kl:
            of_logits += variant.kl * (p - (first[:, None] == states[None]))
        of_values = jnp.zeros_like(values)
        if variant.trains_value:
            of_values = jnp.einsum("kl,kli->i", slopes, landed)
        gradient = LowRank(phi=model.psi @ of_logits, psi=model.phi @ of_logits.T)
        return Gradients(gradient, of_values, jnp.sum(p, axis=0), jnp.mean(v, axis=0))

    return rule
