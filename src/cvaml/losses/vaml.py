"""The (m,b)-VAML family: IterVAML, MuZero and TD as special cases of one squared error.

Every function takes the arrays of one start state and returns a scalar; `jax.vmap` batches.
Targets are data: each function stops their gradient itself. The gradient of `v_model` is left
to the caller, which decides whether it reaches the model only (b = 0: evaluate the samples with
a frozen V) or the model and the value (b >= 1).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from cvaml.losses._checks import check_count, check_length, check_rank
from cvaml.losses.correction import (
    Correction,
    check_correction,
    variance_correction,
    variance_weight,
)
from cvaml.losses.returns import value_targets

Scalar = Float[Array, ""] | float


def vaml_loss(v_model: Float[Array, " k"], target: Scalar) -> Float[Array, ""]:
    r"""The k-sample value-aware loss, equations 1 and 2.

    $$\hat{\mathcal L}^k = \Bigl|\tfrac1k\textstyle\sum_i \hat V(\hat x_i^{(m)})
      - [y]_\mathrm{sg}\Bigr|^2$$

    Its expectation is $(\mathbb{E}v - \mathbb{E}y)^2 + \mathrm{Var}(v)/k + \mathrm{Var}(y)$: the
    middle term is why a stochastic model trained with it loses its variance.

    Args:
        v_model: values of k independent model samples of the m-th state.
        target: `y`, the b-step target of the m-th real state.

    Returns:
        The loss of one start state.
    """
    return cvaml_loss(v_model, target, correction="none")


def cvaml_loss(
    v_model: Float[Array, " k"], target: Scalar, correction: Correction = "unbiased"
) -> Float[Array, ""]:
    r"""The calibrated value-aware loss of section 4.2, a U-statistic.

    $$\hat{\mathcal L}^k_\mathrm{CVAML} = (\bar v - [y]_\mathrm{sg})^2 - \frac{s^2}{k}
      = \frac{1}{k(k-1)}\sum_{i\ne j} (v_i - [y]_\mathrm{sg})(v_j - [y]_\mathrm{sg})$$

    Its expectation is $(\mathbb{E}v - \mathbb{E}y)^2 + \mathrm{Var}(y)$ for every k >= 2. A single
    draw may be negative; clipping it would bring the bias back.

    Args:
        v_model: values of k >= 2 independent model samples of the m-th state.
        target: `y`, the b-step target of the m-th real state.
        correction: see `variance_correction`.

    Returns:
        The loss of one start state.
    """
    check_rank("cvaml_loss", v_model=(v_model, 1), target=(target, 0))
    check_correction("cvaml_loss", correction, v_model.shape[0])
    # Summed relative to one sample, as the correction is: exact in float32, and computed once.
    anchor = jax.lax.stop_gradient(v_model[0])
    error = jnp.sum(v_model - anchor) / v_model.shape[0] + (anchor - jax.lax.stop_gradient(target))
    return jnp.square(error) - variance_correction(v_model, correction)


def mb_vaml_loss(
    v_model: Float[Array, "k m"],
    targets: Float[Array, " m"],
    weights: Float[Array, " m"] | None = None,
    correction: Correction = "none",
) -> Float[Array, ""]:
    r"""The (m,b)-VAML loss over an unroll of m model steps, equation 2.

    $$\hat{\mathcal L}_{m,b} = \frac{\sum_t w_t\,\hat{\mathcal L}^k(v_{\cdot t}, y_t)}{\sum_t w_t}$$

    | special case | b | weights | correction |
    |---|---|---|---|
    | equation 2 of the paper | any | one-hot on step m (default) | none |
    | IterVAML, sampled | 0 | default | none |
    | CVAML | any | default | unbiased |
    | MuZero, TD-MPC unroll | >= 1 | uniform | none |

    Args:
        v_model: values along k independent model trajectories, steps 1 .. m.
        targets: b-step targets of the real states 1 .. m.
        weights: non-negative weight of each step; a weight of 0 masks the step.
        correction: see `variance_correction`.

    Returns:
        The weighted mean over the steps, 0 if every weight is 0.
    """
    check_rank("mb_vaml_loss", v_model=(v_model, 2), targets=(targets, 1))
    k, m = v_model.shape
    check_correction("mb_vaml_loss", correction, k)
    check_count("mb_vaml_loss", "m", m, 1)
    check_length("mb_vaml_loss", targets=(targets.shape[0], m))
    if weights is None:
        return cvaml_loss(v_model[:, -1], targets[-1], correction)
    check_rank("mb_vaml_loss", weights=(weights, 1))
    check_length("mb_vaml_loss", weights=(weights.shape[0], m))
    losses = jax.vmap(lambda v, y: cvaml_loss(v, y, correction), in_axes=(1, 0))(v_model, targets)
    total = jnp.sum(weights)
    return jnp.sum(weights * losses) / jnp.where(total == 0, 1, total)


def itervaml_loss(
    p_model: Float[Array, " n"], p_true: Float[Array, " n"], values: Float[Array, " n"]
) -> Float[Array, ""]:
    r"""The expectation form of IterVAML on a finite space, equation 1.

    $$\mathcal L_\mathrm{IterVAML} = \bigl|\mathbb{E}_{\hat p}[V] -
      [\mathbb{E}_{\mathcal P}V]_\mathrm{sg}\bigr|^2$$

    Zero means that the model's Bellman operator equals the true one at V (Proposition 1).

    Args:
        p_model: the model's distribution of the next state; the only argument with a gradient.
        p_true: the environment's distribution of the next state.
        values: V of each state.

    Returns:
        The loss of one start state.
    """
    check_rank("itervaml_loss", p_model=(p_model, 1), p_true=(p_true, 1), values=(values, 1))
    states = values.shape[0]
    check_length(
        "itervaml_loss", p_model=(p_model.shape[0], states), p_true=(p_true.shape[0], states)
    )
    p_true, values = jax.lax.stop_gradient((p_true, values))
    return jnp.square(jnp.dot(p_model, values) - jnp.dot(p_true, values))


def expected_vaml_loss(
    p_model: Float[Array, " n"],
    p_true: Float[Array, " n"],
    values: Float[Array, " n"],
    k: int,
    correction: Correction,
    targets: Float[Array, " n"] | None = None,
) -> Float[Array, ""]:
    r"""The expectation of the k-sample loss over model and environment draws, in closed form.

    $$(\mathbb{E}_{\hat p}V - \mathbb{E}_{\mathcal P}y)^2 + c(k)\,\mathrm{Var}_{\hat p}(V)
      + \mathrm{Var}_{\mathcal P}(y)$$

    with `c = variance_weight(k, correction)`. The last term does not depend on the model: it is
    the floor of the sampled loss. Gradients flow through `p_model` and through `values` on the
    model's side (what MuZero trains V with); `p_true` and the targets are data.

    Args:
        p_model: the model's distribution of the m-th state.
        p_true: the environment's distribution of the m-th state.
        values: V of each state, as evaluated on the model's samples.
        k: number of model samples.
        correction: see `variance_correction`.
        targets: `y` of each state, `[T^b V_tar](x)`; `values` when not given (b = 0).

    Returns:
        The expected loss of one start state.
    """
    check_rank("expected_vaml_loss", p_model=(p_model, 1), p_true=(p_true, 1), values=(values, 1))
    states = values.shape[0]
    weight = variance_weight(k, correction)
    targets = values if targets is None else targets
    check_rank("expected_vaml_loss", targets=(targets, 1))
    check_length(
        "expected_vaml_loss",
        p_model=(p_model.shape[0], states),
        p_true=(p_true.shape[0], states),
        targets=(targets.shape[0], states),
    )
    p_true, targets = jax.lax.stop_gradient((p_true, targets))
    mean, target_mean = jnp.dot(p_model, values), jnp.dot(p_true, targets)
    variance = jnp.dot(p_model, jnp.square(values - mean))
    target_variance = jnp.dot(p_true, jnp.square(targets - target_mean))
    return jnp.square(mean - target_mean) + weight * variance + target_variance


def muzero_loss(
    v_model: Float[Array, " k"],
    rewards: Float[Array, " b"],
    discounts: Float[Array, " b"],
    bootstrap: Scalar,
    correction: Correction = "none",
) -> Float[Array, ""]:
    r"""The MuZero-style loss, (m, b >= 1)-VAML: trains the model and the value at once.

    $$\bigl(\tfrac1k\textstyle\sum_i\hat V(\hat x_i^{(m)}) - [r^{(m)} + \dots +
      \gamma^b V_\mathrm{tar}(x^{(m+b)})]_\mathrm{sg}\bigr)^2$$

    The gradient reaches `v_model`, hence the model's samples and V; it stops at rewards,
    discounts and bootstrap.

    Args:
        v_model: values of k model samples of the m-th state, by the online V.
        rewards: the b >= 1 rewards that follow the m-th real state.
        discounts: the discount after each of them, 0 at a termination.
        bootstrap: `V_tar(x^(m+b))`.
        correction: see `variance_correction`; it calibrates the mean, not each state.

    Returns:
        The loss of one start state.
    """
    target = _bootstrapped("muzero_loss", rewards, discounts, bootstrap)
    return cvaml_loss(v_model, target, correction)


def td_loss(
    v: Scalar, rewards: Float[Array, " b"], discounts: Float[Array, " b"], bootstrap: Scalar
) -> Float[Array, ""]:
    r"""The ordinary TD loss, m = 0 and b >= 1, equation 4: the calibrated way to learn V.

    $$\bigl(\hat V(x^{(m)}) - [r^{(m)} + \gamma V_\mathrm{tar}(x^{(m+1)})]_\mathrm{sg}\bigr)^2$$

    Args:
        v: the online V of a real (or model) state; the only argument with a gradient.
        rewards: the b >= 1 rewards that follow it.
        discounts: the discount after each of them, 0 at a termination.
        bootstrap: `V_tar` of the state after the last reward.

    Returns:
        The loss of one state.
    """
    check_rank("td_loss", v=(v, 0))
    target = _bootstrapped("td_loss", rewards, discounts, bootstrap)
    return jnp.square(v - jax.lax.stop_gradient(target))


def _bootstrapped(
    function: str, rewards: Float[Array, " b"], discounts: Float[Array, " b"], bootstrap: Scalar
) -> Float[Array, ""]:
    """The b-step target of the state before the first reward."""
    check_rank(function, rewards=(rewards, 1), discounts=(discounts, 1), bootstrap=(bootstrap, 0))
    b = rewards.shape[0]
    check_count(function, "b (the length of rewards)", b, 1)
    return value_targets(rewards, discounts, jnp.full(b + 1, bootstrap), b)[0]
