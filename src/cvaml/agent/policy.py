"""One member's action: encoder, actor, and MPPI over the latent model."""

import contextlib
from collections.abc import Iterator

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from cvaml.agent.config import AgentConfig
from cvaml.agent.networks import Networks, ValueHead
from cvaml.agent.objective import Metrics, normalise, state_values
from cvaml.agent.planner import plan
from cvaml.agent.state import AgentState


def act_member(
    state: AgentState,
    observation: Float[Array, " o"],
    key: PRNGKeyArray,
    config: AgentConfig,
    explore: bool,
) -> tuple[Float[Array, " a"], Metrics]:
    """An action in [-1, 1].

    With planning: the mean of the refined plan, plus its standard deviation times noise when
    exploring. Without: the actor's action, plus the member's exploration noise.

    Args:
        state: of the member.
        observation: raw.
        key: for the planner's samples and the exploration noise.
        config: static.
        explore: static; False is greedy, for evaluation.

    Returns:
        The action and the planner's statistics.
    """
    plan_key, noise_key = jax.random.split(key)
    with _precision(config):
        networks = _cast(state.networks, config)
        z = state.networks.encoder(normalise(observation, state.scales.observation, config))
        if not config.plans:
            action = jnp.tanh(state.networks.actor(z))
            std = jnp.broadcast_to(state.settings.exploration_noise, action.shape)
            return _explore(action, std, noise_key, explore), {}
        z = z.astype(networks.actor.out.weight.dtype)
        found = plan(
            plan_key,
            z,
            _actor_plan(networks, z, config.planner.horizon),
            lambda z, a: _mean_step(networks, z, a),
            lambda z: jnp.mean(
                state_values(networks.critics, networks.actor, z, ValueHead.of(config.network))
            ),
            config.discount,
            config.planner,
        )
        start = jnp.tanh(networks.actor(z)).astype(jnp.float32)
    action = _explore(found.mean[0], found.std[0], noise_key, explore)
    info = {
        "planner/entropy": found.entropy,
        "planner/spread": found.spread,
        "planner/gain": found.gain,
        "planner/std": jnp.mean(found.std[0]),
        "planner/distance": jnp.mean(jnp.square(action - start)),
    }
    return action, info


def _mean_step(
    networks: Networks, z: Float[Array, " d"], action: Float[Array, " a"]
) -> tuple[Float[Array, " d"], Float[Array, ""]]:
    """The model's mean next state and reward."""
    prediction = networks.dynamics(z, action.astype(z.dtype))
    return prediction.mean, prediction.reward


def _actor_plan(networks: Networks, z: Float[Array, " d"], horizon: int) -> Float[Array, "h a"]:
    """The actor's actions along the model's mean trajectory: where planning starts."""
    actions = []
    for _ in range(horizon):
        action = jnp.tanh(networks.actor(z))
        actions.append(action.astype(jnp.float32))
        z, _ = _mean_step(networks, z, action)
    return jnp.stack(actions)


def _explore(
    action: Float[Array, " a"], std: Float[Array, " a"], key: PRNGKeyArray, explore: bool
) -> Float[Array, " a"]:
    if not explore:
        return action
    return jnp.clip(action + std * jax.random.normal(key, action.shape), -1, 1)


def _cast(networks: Networks, config: AgentConfig) -> Networks:
    """The networks in the planner's arithmetic; scores are summed in float32 all the same."""
    if config.planner.precision != "bfloat16":
        return networks
    return jax.tree.map(lambda x: x.astype(jnp.bfloat16), networks)


@contextlib.contextmanager
def _precision(config: AgentConfig) -> Iterator[None]:
    """Precision of float32 products while acting."""
    name = "tensorfloat32" if config.planner.precision == "tf32" else "highest"
    with jax.default_matmul_precision(name):
        yield
