"""Proposition 1 and the helper lemmas of the paper, as numbers on finite problems.

The lemmas speak of `g(ξ) = E_{x~p}(E_ξ f - f(x))² + Var_ξ f / k`, which is the expected k-sample
loss with f as values and targets, and of p*, the distribution of least variance among those of
the mean of p; on finitely many states p* sits on the two values next to that mean.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from cvaml.calibration.checks import check_distribution, check_finite
from cvaml.calibration.evaluate import Rows, surrogate_losses, target_losses
from cvaml.calibration.models import ALL, Start, model_candidates, model_regret
from cvaml.calibration.problems import MAX_STATES, Problem
from cvaml.losses import expected_vaml_loss
from cvaml.types import UserError

_ZERO_LOSS = 1e-24


class OperatorGap(NamedTuple):
    """Proposition 1 on one problem."""

    zero_loss: float
    """Largest `|T_P V - T_model V|` over models and states of zero IterVAML loss."""
    any_loss: float
    """Largest deviation from `|T_P V - T_model V| = γ·√loss` for a model of non-zero loss."""


def operator_gap(problem: Problem) -> OperatorGap:
    """Compares the Bellman operators of the environment and of value-equivalent models.

    Args:
        problem: a problem whose V is neither largest nor smallest in expectation at every state.

    Returns:
        The two gaps.
    """
    values, true = problem.values, problem.targets(1)
    widest = 0.0
    for x, row in enumerate(problem.kernel):
        models = model_candidates(Start(row, values, values), 2, "unbiased", ALL)
        losses = target_losses(_against(models, Start(row, values, values)))
        applied = problem.rewards[x] + problem.discount * models[losses < _ZERO_LOSS] @ values
        widest = max(widest, *np.abs(applied - true[x]))
    uniform = np.full_like(problem.kernel, 1 / problem.states)
    repeated = np.broadcast_to(values, uniform.shape)
    losses = target_losses(Rows(uniform, problem.kernel, repeated, repeated))
    gap = np.abs(problem.rewards + problem.discount * uniform @ values - true)
    return OperatorGap(widest, float(np.abs(gap - problem.discount * np.sqrt(losses)).max()))


class LemmaNumbers(NamedTuple):
    """Lemmas 3 to 5 at one start state."""

    margin: float
    """Lemma 3: smallest `g(p') - g(p*)` over other distributions of the same mean; >= 0."""
    condition: bool
    """Lemma 4's premise: a state q with `(f(q) - E_p f)² < Var_{p*} f / k`."""
    gain: float
    """Lemma 4: `g(p*) - g(q)` for the state nearest to the mean; > 0 under the premise."""
    excess: float
    """Lemma 5: regret of the global minimiser of g; > 0 under the premise."""


def lemma_numbers(start: Start, k: int, generator: np.random.Generator) -> LemmaNumbers:
    """Evaluates lemmas 3, 4 and 5 at one start state.

    Args:
        start: a start state with b = 0, no value equal to the mean (the paper's assumption).
        k: number of model samples.
        generator: draws the other distributions of lemma 3; the call advances it.

    Returns:
        The numbers.
    """
    values, mean = start.values, start.mean
    if np.any(values == mean):
        raise UserError("the lemmas assume that no state has exactly the mean value")
    same_mean = model_candidates(start, 2, "unbiased", ALL)
    same_mean = same_mean[np.abs(same_mean @ values - mean) < 1e-12]
    variances = same_mean @ values**2 - mean**2
    narrowest = int(variances.argmin())
    mixtures = generator.dirichlet(np.ones(len(same_mean)), size=16) @ same_mean
    others = np.concatenate([np.delete(same_mean, narrowest, axis=0), mixtures])
    nearest = np.eye(len(values))[np.abs(values - mean).argmin()]
    models = np.concatenate([same_mean[narrowest][None], nearest[None], others])
    g = surrogate_losses(_against(models, start), k, "none")
    return LemmaNumbers(
        margin=float((g[2:] - g[0]).min()),
        condition=bool((nearest @ values - mean) ** 2 < variances[narrowest] / k),
        gain=float(g[0] - g[1]),
        excess=float(model_regret([start], k, "none", ALL).excess[0]),
    )


class ShrinkSlopes(NamedTuple):
    """Derivatives at ε = 0 along `g - ε·g`, the direction of the lemma before Proposition 2.3."""

    printed: float
    """Of the lemma's function; equals `-Var(g)`."""
    loss: float
    """Of the expected MuZero loss with the true kernel as model, k = 1; equals `-2·Var(g)`."""
    variance: float
    """`Var(g)`."""


def shrink_slopes(
    probabilities: Float[np.ndarray, " n"], targets: Float[np.ndarray, " n"]
) -> ShrinkSlopes:
    """Shows that the Bellman target is no stationary point of the MuZero value loss.

    Args:
        probabilities: μ, the distribution of the next state.
        targets: g, the Bellman targets of at most 10 states; where they are not constant,
            shrinking them lowers the loss.

    Returns:
        Both slopes by automatic differentiation, and the variance that they should equal.
    """
    check_distribution("probabilities", probabilities)
    check_finite("targets", targets)
    padded = np.zeros((2, MAX_STATES))
    padded[:, : len(targets)] = probabilities, targets
    with jax.enable_x64(True):
        printed, loss = map(float, _slopes(*padded))
    mean = probabilities @ targets
    return ShrinkSlopes(printed, loss, float(probabilities @ (targets - mean) ** 2))


@jax.jit
def _slopes(
    p: Float[Array, " n"], g: Float[Array, " n"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Derivatives of the lemma's function and of the loss at ε = 0."""

    def lemma(epsilon: Float[Array, ""]) -> Float[Array, ""]:
        f = g - epsilon * g
        cross = jnp.dot(p, f * g) - jnp.dot(p, f) * jnp.dot(p, g)
        return jnp.dot(p, jnp.square(f - g)) + cross

    def loss(epsilon: Float[Array, ""]) -> Float[Array, ""]:
        return expected_vaml_loss(p, p, g - epsilon * g, 1, "none", g)

    zero = jnp.zeros((), g.dtype)
    return jax.grad(lemma)(zero), jax.grad(loss)(zero)


def _against(models: Float[np.ndarray, "s n"], start: Start) -> Rows:
    """Many models of one start state."""
    p_true, values, targets = (np.broadcast_to(array, models.shape) for array in start)
    return Rows(models, p_true, values, targets)
