"""Model trajectories by reparameterisation, and the likelihood of a real state under them."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from cvaml.agent.networks import Dynamics, Prediction
from cvaml.losses import gaussian_mixture_nll, gaussian_nll, squared_error


class Rollout(NamedTuple):
    """k independent model trajectories of m steps for each start state of a batch."""

    latents: Float[Array, "k batch m d"]
    """Sampled latent states of steps 1 .. m."""
    first: Prediction
    """The first step's prediction, `[1, batch, ...]`: the k trajectories share their start."""
    later: Prediction
    """The predictions of steps 2 .. m, `[m - 1, k, batch, ...]`."""


def sample(
    prediction: Prediction, noise: Float[Array, "*n d"], stochastic: bool
) -> Float[Array, "*n d"]:
    """A reparameterised draw, not normalised again; the mean for a deterministic model."""
    mean = jnp.broadcast_to(prediction.mean, noise.shape)
    if not stochastic:
        return mean
    return mean + jnp.broadcast_to(jnp.exp(prediction.log_std), noise.shape) * noise


def rollout(
    dynamics: Dynamics,
    start: Float[Array, "batch d"],
    actions: Float[Array, "batch m a"],
    noise: Float[Array, "m k batch d"],
    stochastic: bool,
) -> Rollout:
    """Unrolls the model along real actions.

    Args:
        dynamics: the latent model.
        start: encodings of the start states.
        actions: the real actions of steps 0 .. m - 1.
        noise: independent standard normals for every step and trajectory.
        stochastic: whether the noise is used.

    Returns:
        The trajectories. Gradients flow through every step to the start.
    """
    first = dynamics(start[None], actions[None, :, 0])
    z = sample(first, noise[0], stochastic)

    def step(
        z: Float[Array, "k batch d"], inputs: tuple[Array, Array]
    ) -> tuple[Array, tuple[Array, Prediction]]:
        action, draw = inputs
        prediction = dynamics(z, action[None])
        z = sample(prediction, draw, stochastic)
        return z, (z, prediction)

    _, (latents, later) = jax.lax.scan(step, z, (jnp.swapaxes(actions, 0, 1)[1:], noise[1:]))
    return Rollout(jnp.moveaxis(jnp.concatenate([z[None], latents]), 0, 2), first, later)


def auxiliary(
    trajectories: Rollout, targets: Float[Array, "batch m d"], stochastic: bool, mixture: bool
) -> Float[Array, "batch m"]:
    r"""The auxiliary loss of every step, summed over the latent dimensions.

    A Gaussian model's m-step likelihood has no closed form for m > 1. With k sampled predecessors
    the mean of the k last-step densities' logarithms bounds it, and the logarithm of their mean
    is tighter; both are exact for m = 1. A deterministic model gets the squared error.

    Args:
        trajectories: of the model.
        targets: encodings of the real states 1 .. m; their gradient is stopped.
        stochastic: whether the model is Gaussian.
        mixture: the log-mean-exp over the k samples rather than the mean of the bounds.

    Returns:
        One loss for every start state and step.
    """

    def one(prediction: Prediction, target: Float[Array, " d"]) -> Float[Array, ""]:
        mean, log_std = prediction.mean, prediction.log_std
        if not stochastic:
            return jnp.mean(jax.vmap(squared_error, in_axes=(0, None))(mean, target))
        if mixture:
            return gaussian_mixture_nll(mean, log_std, target)
        return jnp.mean(jax.vmap(gaussian_nll, in_axes=(0, 0, None))(mean, log_std, target))

    batched = jax.vmap(one, in_axes=(1, 0))
    steps = jnp.swapaxes(targets, 0, 1)
    first = batched(trajectories.first, steps[0])
    later = jax.vmap(batched)(trajectories.later, steps[1:])
    return jnp.concatenate([first[:, None], later.T], axis=1)


def reward_errors(
    trajectories: Rollout, rewards: Float[Array, "batch m"], scale: Float[Array, ""]
) -> Float[Array, "batch m"]:
    """Squared reward errors of every step, in units of `scale`, averaged over the samples."""
    first = jnp.square((trajectories.first.reward[0] - rewards[:, 0]) / scale)
    real = rewards.T[1:, None]
    later = jnp.mean(jnp.square((trajectories.later.reward - real) / scale), axis=1)
    return jnp.concatenate([first[:, None], later.T], axis=1)


def continuation_losses(
    trajectories: Rollout, terminated: Bool[Array, "batch m"]
) -> Float[Array, "batch m"]:
    """Binary cross-entropy of every step's continuation, averaged over the samples."""
    sign = jnp.where(terminated, 1.0, -1.0)
    first = jax.nn.softplus(sign[:, 0] * trajectories.first.continues[0])
    later = jnp.mean(jax.nn.softplus(sign.T[1:, None] * trajectories.later.continues), axis=1)
    return jnp.concatenate([first[:, None], later.T], axis=1)
