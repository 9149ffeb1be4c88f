"""The variance of a k-sample mean: the term that calibrates a sampled value-aware loss."""

from typing import Literal, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from cvaml.losses._checks import check_count, check_rank

Correction = Literal["unbiased", "printed", "none"]


def check_correction(function: str, correction: str, k: int) -> None:
    """Raises ValueError unless `correction` is known and can be computed from k samples."""
    if correction not in get_args(Correction):
        allowed = ", ".join(map(repr, get_args(Correction)))
        raise ValueError(f"{function}: correction must be one of {allowed}, got {correction!r}")
    why = (
        f"the correction {correction!r} estimates a variance, and one sample has none; "
        "draw more model samples or use correction='none'"
    )
    check_count(function, "k", k, 1 if correction == "none" else 2, why)


def variance_correction(
    v_model: Float[Array, " k"], correction: Correction = "unbiased"
) -> Float[Array, ""]:
    r"""What is subtracted from `(v̄ - y)²` to remove the variance of `v̄`.

    - `"unbiased"`: $\frac{s^2}{k}$ with $s^2 = \frac{1}{k-1}\sum_i (v_i - \bar v)^2$, whose
      expectation is $\mathrm{Var}(v)/k$: what Proposition 2.2 needs.
    - `"printed"`: $\frac1k\sum_i (v_i - \bar v)^2$ as section 4.2 prints it, of expectation
      $\frac{k-1}{k}\mathrm{Var}(v)$. Equal to the unbiased one at k = 2 only.
    - `"none"`: 0.

    Args:
        v_model: values of the k model samples.
        correction: which estimator.

    Returns:
        The scalar to subtract; gradients flow to every sample.
    """
    check_rank("variance_correction", v_model=(v_model, 1))
    k = v_model.shape[0]
    check_correction("variance_correction", correction, k)
    if correction == "none":
        return jnp.zeros((), v_model.dtype)
    # Shifting by one sample before squaring keeps float32 exact where values are large and close
    # together. The variance does not depend on the shift, so nothing flows through it; one pass
    # over the samples is half the cost of two, forward and backward.
    shifted = v_model - jax.lax.stop_gradient(v_model[0])
    squares = jnp.sum(jnp.square(shifted)) - jnp.square(jnp.sum(shifted)) / k
    return squares / (k * (k - 1)) if correction == "unbiased" else squares / k


def variance_weight(k: int, correction: Correction) -> float:
    r"""The factor c in $\mathbb{E}[\text{loss}] = (\mathbb{E}v - \mathbb{E}y)^2 + c\,
    \mathrm{Var}(v) + \mathrm{Var}(y)$.

    It is 1/k without a correction, 0 with the unbiased one, and -(k - 2)/k with the printed
    one, which therefore rewards variance as soon as k > 2.

    Args:
        k: number of model samples.
        correction: which estimator is subtracted.

    Returns:
        The weight of the model's value variance in the expected loss.
    """
    check_correction("variance_weight", correction, k)
    return {"none": 1 / k, "unbiased": 0.0, "printed": -(k - 2) / k}[correction]
