"""One batch as the networks see it: encodings, on-policy model steps, and values of later states.

All losses of a member share it, so nothing is evaluated twice.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from cvaml.agent.config import AgentConfig
from cvaml.agent.networks import Actor, Critic, Networks, ValueHead
from cvaml.agent.replay import Masks, Rows, sequence_masks
from cvaml.agent.rollout import sample
from cvaml.agent.state import AgentState, Moments

stop = jax.lax.stop_gradient


class Imagined(NamedTuple):
    """Model steps that replace the last real transitions of the critics' batch."""

    reward: Float[Array, " n"]
    continues: Float[Array, " n"]
    """Probability that the episode goes on."""
    successor: Float[Array, "n d"]
    values: Float[Array, "2 n"]
    """Of the successors, by both target critics."""


class View(NamedTuple):
    """One batch as the networks see it, shared by all losses."""

    networks: Networks
    state: AgentState
    rows: Rows
    masks: Masks
    z: Float[Array, "batch d"]
    """Encodings of the first states, with gradient."""
    before_tanh: Float[Array, "batch a"]
    """The actor's output there, with gradient to the actor only."""
    later: Float[Array, "batch T d"]
    """Encodings of the states after them, stopped."""
    later_values: Float[Array, "2 batch T"]
    """Their values by both target critics, stopped."""
    imagined: Imagined
    """On-policy steps of the model from the last states of the batch, stopped."""
    value_scale: Float[Array, ""]
    """Unit of values in the losses."""
    reward_scale: Float[Array, ""]
    """Unit of rewards in the losses."""


def normalise(
    observation: Float[Array, "*n o"], moments: Moments, config: AgentConfig
) -> Float[Array, "*n o"]:
    """Observations in running standard deviations, at most 10; unchanged if switched off."""
    if not config.network.observation_norm:
        return observation
    mean = jnp.broadcast_to(moments.mean, observation.shape)
    std = jnp.broadcast_to(jnp.sqrt(moments.variance + 1e-4), observation.shape)
    return jnp.clip((observation - mean) / std, -10, 10)


def q_values(
    critics: Critic, z: Float[Array, "*n d"], action: Float[Array, "*n a"], head: ValueHead
) -> Float[Array, "2 *n"]:
    """Both critics' values."""
    return head.decode(jax.vmap(lambda critic: critic(z, action))(critics))


def state_values(
    critics: Critic, actor: Actor, z: Float[Array, "*n d"], head: ValueHead
) -> Float[Array, "2 *n"]:
    """V(z) = Q(z, π(z)) of both critics; the gradient reaches z also through π, never π itself."""
    return q_values(critics, z, jnp.tanh(stop(actor)(z)), head)


def look(
    networks: Networks, state: AgentState, rows: Rows, key: PRNGKeyArray, config: AgentConfig
) -> View:
    """Encodes a batch, steps the model on-policy, and evaluates all later states at once."""
    observation = normalise(rows.observation, state.scales.observation, config)
    z = networks.encoder(observation[:, 0])
    later = stop(networks.encoder(observation[:, 1:]))
    before_tanh = networks.actor(stop(z))
    batch, steps = later.shape[:2]
    imagined = round((1 - config.real_fraction) * batch) if config.variant.has_model else 0
    start = stop(z[batch - imagined :])
    step = stop(networks.dynamics(start, jnp.tanh(before_tanh[batch - imagined :])))
    successor = sample(step, jax.random.normal(key, start.shape), config.stochastic)
    evaluated = jnp.concatenate([later.reshape(batch * steps, -1), successor])
    head = ValueHead.of(config.network)
    values = stop(state_values(state.target_critics, networks.actor, evaluated, head))
    running = config.loss.value_scale == "running"
    # The floor of 1 keeps raw units while values are small: dividing by a small standard
    # deviation would let the value-aware loss drown the others before values mean anything.
    value_scale, reward_scale = (
        jnp.maximum(1.0, moments.std) if running else jnp.ones(())
        for moments in (state.scales.value, state.scales.reward)
    )
    return View(
        networks=networks,
        state=state,
        rows=rows,
        masks=sequence_masks(rows),
        z=z,
        before_tanh=before_tanh,
        later=later,
        later_values=values[:, : batch * steps].reshape(2, batch, steps),
        imagined=Imagined(
            step.reward, jax.nn.sigmoid(step.continues), successor, values[:, batch * steps :]
        ),
        value_scale=value_scale,
        reward_scale=reward_scale,
    )
