"""Losses that stabilise a latent model: likelihood, squared error, reward, value bins."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from cvaml.losses._checks import check_length, check_rank
from cvaml.losses.vaml import Scalar

LOG_2PI = 1.8378770664093453


def gaussian_nll(
    mean: Float[Array, " d"], log_std: Float[Array, " d"], target: Float[Array, " d"]
) -> Float[Array, ""]:
    r"""Negative log-density of a diagonal Gaussian, the auxiliary loss of a stochastic model.

    $$-\log \hat p(z) = \sum_i \tfrac12\Bigl(\frac{z_i-\mu_i}{\sigma_i}\Bigr)^2 + \log\sigma_i +
      \tfrac12\log 2\pi, \qquad z = [\varphi(x^{(m)})]_\mathrm{sg}$$

    Args:
        mean: predicted mean.
        log_std: predicted log standard deviation.
        target: the encoding of the real state; its gradient is stopped.

    Returns:
        The sum over the dimensions, in nats.
    """
    check_rank("gaussian_nll", mean=(mean, 1), log_std=(log_std, 1), target=(target, 1))
    size = mean.shape[0]
    check_length("gaussian_nll", log_std=(log_std.shape[0], size), target=(target.shape[0], size))
    scaled = (jax.lax.stop_gradient(target) - mean) * jnp.exp(-log_std)
    return jnp.sum(0.5 * jnp.square(scaled) + log_std + 0.5 * LOG_2PI)


def gaussian_mixture_nll(
    means: Float[Array, "k d"], log_stds: Float[Array, "k d"], target: Float[Array, " d"]
) -> Float[Array, ""]:
    r"""Negative log-density of an equal mixture of k Gaussians.

    $$-\log \tfrac1k\textstyle\sum_i \hat p(z \mid \hat z_i^{(m-1)})$$

    The m-step likelihood has no closed form; this bound from k sampled predecessors is exact
    for m = 1, and tighter than the mean of the k single-sample bounds for m > 1.

    Args:
        means: mean of the last step from each of k sampled predecessors.
        log_stds: their log standard deviations.
        target: the encoding of the real state; its gradient is stopped.

    Returns:
        The negative log-density, in nats.
    """
    check_rank("gaussian_mixture_nll", means=(means, 2), log_stds=(log_stds, 2), target=(target, 1))
    nll = jax.vmap(gaussian_nll, in_axes=(0, 0, None))(means, log_stds, target)
    return jnp.log(means.shape[0]) - jax.nn.logsumexp(-nll)


def gaussian_entropy(log_std: Float[Array, " d"]) -> Float[Array, ""]:
    r"""Differential entropy of a diagonal Gaussian: $\tfrac12\sum_i \log(2\pi e\,\sigma_i^2)$.

    Args:
        log_std: log standard deviations.

    Returns:
        The entropy, in nats.
    """
    check_rank("gaussian_entropy", log_std=(log_std, 1))
    return jnp.sum(log_std + 0.5 * (1 + LOG_2PI))


def squared_error(prediction: Float[Array, " d"], target: Float[Array, " d"]) -> Float[Array, ""]:
    r"""The auxiliary loss of a deterministic model, equation 6.

    $$\bigl\|\hat f^m(\varphi(x)) - [\varphi(x^{(m)})]_\mathrm{sg}\bigr\|^2$$

    Args:
        prediction: the predicted latent state.
        target: the encoding of the real state; its gradient is stopped.

    Returns:
        The squared norm, summed over the dimensions.
    """
    check_rank("squared_error", prediction=(prediction, 1), target=(target, 1))
    check_length("squared_error", target=(target.shape[0], prediction.shape[0]))
    return jnp.sum(jnp.square(prediction - jax.lax.stop_gradient(target)))


def reward_loss(prediction: Scalar, reward: Scalar) -> Float[Array, ""]:
    """Squared error of a predicted reward; the real reward is data.

    Args:
        prediction: the predicted reward.
        reward: the observed reward.

    Returns:
        The squared error.
    """
    check_rank("reward_loss", prediction=(prediction, 0), reward=(reward, 0))
    return jnp.square(jnp.asarray(prediction) - jax.lax.stop_gradient(reward))


def hl_gauss_encode(
    value: Scalar, edges: Float[Array, " bins_plus_1"], sigma: Scalar
) -> Float[Array, " bins"]:
    r"""Spreads a scalar over bins as the masses of a Gaussian around it (HL-Gauss).

    $$p_i \propto \Phi\Bigl(\frac{e_{i+1}-y}{\sigma}\Bigr) - \Phi\Bigl(\frac{e_i-y}{\sigma}\Bigr)$$

    Args:
        value: the scalar; outside the support it is moved to the nearest edge.
        edges: increasing bin edges.
        sigma: standard deviation, commonly 0.75 of a bin's width.

    Returns:
        Probabilities of the bins.
    """
    check_rank("hl_gauss_encode", value=(value, 0), edges=(edges, 1), sigma=(sigma, 0))
    value = jnp.clip(jnp.asarray(value, edges.dtype), edges[0], edges[-1])
    cdf = jax.scipy.special.ndtr((edges - value) / sigma)
    # The value lies inside the support, so the denominator is at least 1/2 for any sigma > 0
    # small against the support: no division by zero.
    return jnp.diff(cdf) / (cdf[-1] - cdf[0])


def hl_gauss_decode(
    probabilities: Float[Array, " bins"], edges: Float[Array, " bins_plus_1"]
) -> Float[Array, ""]:
    """The mean of a distribution over bins: a linear read-out, as the correction requires.

    Args:
        probabilities: probabilities of the bins.
        edges: increasing bin edges.

    Returns:
        The expected bin centre.
    """
    check_rank("hl_gauss_decode", probabilities=(probabilities, 1), edges=(edges, 1))
    check_length("hl_gauss_decode", edges=(edges.shape[0], probabilities.shape[0] + 1))
    return jnp.sum(probabilities * (edges[:-1] + edges[1:]) / 2)
