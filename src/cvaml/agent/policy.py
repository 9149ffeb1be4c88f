"""One member's action: encoder, actor, and MPPI over the latent model."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from cvaml.agent.config import AgentConfig
from cvaml.agent.networks import Networks, ValueHead, products, with_half_products
from cvaml.agent.objective import Metrics
from cvaml.agent.planner import plan
from cvaml.agent.state import Policy
from cvaml.agent.view import normalise, state_values


class Imagined(NamedTuple):
    """Where a plan has led."""

    z: Float[Array, " d"]
    alive: Float[Array, ""]
    """Probability that the episode has not terminated on the way."""


def act_member(
    policy: Policy,
    observation: Float[Array, " o"],
    key: PRNGKeyArray,
    noise: Float[Array, " a"] | None,
    config: AgentConfig,
) -> tuple[Float[Array, " a"], Metrics]:
    """An action in [-1, 1].

    The mean of the refined plan, or without planning the actor's action. Noise is added with the
    plan's own standard deviation, but at least the member's exploration noise.

    Args:
        policy: of the member.
        observation: raw.
        key: for the planner's samples.
        noise: standard normal, to explore; None is greedy, for evaluation.
        config: static.

    Returns:
        The action and the planner's statistics.
    """
    with products(config.planner.precision):
        networks = policy.networks
        if config.planner.precision == "float16":
            networks = with_half_products(networks)
        z = networks.encoder(normalise(observation, policy.observation, config))
        if not config.plans:
            action = jnp.tanh(networks.actor(z))
            return _explore(action, jnp.zeros(action.shape), noise, policy), {}
        found = plan(
            key,
            Imagined(z, jnp.ones(())),
            _actor_plan(networks, z, config.planner.horizon),
            lambda state, action: _mean_step(networks, state, action),
            lambda state: _value(networks, state, ValueHead.of(config.network)),
            config.discount,
            config.planner,
        )
        start = jnp.tanh(networks.actor(z))
    action = _explore(found.mean[0], found.std[0], noise, policy)
    info = {
        "planner/entropy": found.entropy,
        "planner/spread": found.spread,
        "planner/gain": found.gain,
        "planner/std": jnp.mean(found.std[0]),
        "planner/distance": jnp.mean(jnp.square(action - start)),
    }
    return action, info


def _mean_step(
    networks: Networks, state: Imagined, action: Float[Array, " a"]
) -> tuple[Imagined, Float[Array, ""]]:
    """The model's mean next state, and its reward if the episode still runs."""
    prediction = networks.dynamics(state.z, action)
    alive = state.alive * jax.nn.sigmoid(prediction.continues)
    return Imagined(prediction.mean, alive), state.alive * prediction.reward


def _value(networks: Networks, state: Imagined, head: ValueHead) -> Float[Array, ""]:
    """Mean value of both critics, if the episode still runs."""
    values = state_values(networks.critics, networks.actor, state.z, head)
    return state.alive * jnp.mean(values)


def _actor_plan(networks: Networks, z: Float[Array, " d"], horizon: int) -> Float[Array, "h a"]:
    """The actor's actions along the model's mean trajectory: where planning starts."""
    actions = [jnp.tanh(networks.actor(z))]
    for _ in range(horizon - 1):
        z = networks.dynamics(z, actions[-1]).mean
        actions.append(jnp.tanh(networks.actor(z)))
    return jnp.stack(actions)


def _explore(
    action: Float[Array, " a"],
    std: Float[Array, " a"],
    noise: Float[Array, " a"] | None,
    policy: Policy,
) -> Float[Array, " a"]:
    if noise is None:
        return action
    return jnp.clip(action + jnp.maximum(std, policy.exploration_noise) * noise, -1, 1)
