"""The auxiliary loss's model: it predicts the mean latent state, which fits affine values only."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from cvaml.calibration.checks import check_distribution, check_finite
from cvaml.losses import squared_error


def expectation_model(
    latents: Float[np.ndarray, "s d"], probabilities: Float[np.ndarray, " s"]
) -> Float[np.ndarray, " d"]:
    """The minimiser of the expected auxiliary loss, equation 6.

    The loss is quadratic with Hessian 2·I, so one Newton step from anywhere, here from zero,
    reaches its minimum; its gradient is that of `squared_error`.

    Args:
        latents: the possible encodings of the next state.
        probabilities: their probabilities.

    Returns:
        The mean encoding.
    """
    check_finite("latents", latents)
    check_distribution("probabilities", probabilities)
    with jax.enable_x64(True):
        slope = _expected_slope(np.zeros(latents.shape[1]), latents, probabilities)
        return -0.5 * np.asarray(slope)


@jax.jit
def _expected_slope(
    prediction: Float[Array, " d"],
    latents: Float[Array, "s d"],
    probabilities: Float[Array, " s"],
) -> Float[Array, " d"]:
    """Gradient of the expected squared error at one prediction."""
    slopes = jax.vmap(jax.grad(squared_error), in_axes=(None, 0))(prediction, latents)
    return jnp.dot(probabilities, slopes)


def expectation_gap(
    latents: Float[np.ndarray, "s d"],
    probabilities: Float[np.ndarray, " s"],
    value: Callable[[Float[np.ndarray, "*batch d"]], Float[np.ndarray, "*batch"]],
) -> float:
    """`E V(z') - V(E z')`: how far the auxiliary model is from value equivalence, equation 7.

    Args:
        latents: the possible encodings of the next state.
        probabilities: their probabilities.
        value: V, applied along the last axis.

    Returns:
        The gap; zero for every distribution exactly if V is affine.
    """
    mean = expectation_model(latents, probabilities)
    return float(probabilities @ value(latents) - value(mean[None])[0])
