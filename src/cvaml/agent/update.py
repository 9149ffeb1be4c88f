"""One gradient step of one member: sample, differentiate, four optimisers, target critics."""

import jax
import jax.numpy as jnp
import optax  # type: ignore[import-untyped]
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray

from cvaml.agent.config import AgentConfig
from cvaml.agent.networks import Networks, products
from cvaml.agent.objective import Metrics, Statistics, objective
from cvaml.agent.replay import Replay, Rows, sample_member
from cvaml.agent.state import AgentState, Scales, optimisers


def update_member(
    state: AgentState, replay: Replay, key: PRNGKeyArray, config: AgentConfig, n_updates: int
) -> tuple[AgentState, Metrics]:
    """Several updates from fresh batches.

    Args:
        state: of the member.
        replay: read only.
        key: may be the same in every call; the state's step count is folded in.
        config: static.
        n_updates: static, at least 1.

    Returns:
        The state, and the metrics averaged over the updates.
    """

    def one(state: AgentState, _: None) -> tuple[AgentState, Metrics]:
        batch_key, loss_key = jax.random.split(jax.random.fold_in(key, state.step))
        rows = sample_member(replay, batch_key, config.batch_size, config.sequence_length)
        return learn(state, rows, loss_key, config)

    if n_updates == 1:
        return one(state, None)
    state, metrics = jax.lax.scan(one, state, None, length=n_updates)
    return state, jax.tree.map(lambda x: jnp.mean(x, axis=0), metrics)


def learn(
    state: AgentState, rows: Rows, key: PRNGKeyArray, config: AgentConfig
) -> tuple[AgentState, Metrics]:
    """One update on given sequences."""
    with products(config.optim.precision):
        grads, (metrics, statistics) = jax.grad(objective, has_aux=True)(
            state.networks, state, rows, key, config
        )
    networks, optimiser_states, norms = _step(state, grads, config)
    polyak = state.settings.polyak
    targets = jax.tree.map(
        lambda old, new: old + polyak * (new - old), state.target_critics, networks.critics
    )
    new = AgentState(
        networks=networks,
        target_critics=targets,
        optimisers=optimiser_states,
        scales=_add(state.scales, statistics),
        settings=state.settings,
        step=state.step + 1,
    )
    return new, metrics | norms


def _step(
    state: AgentState, grads: Networks, config: AgentConfig
) -> tuple[Networks, dict[str, optax.OptState], Metrics]:
    """The networks after one clipped Adam step each, and the gradient norms before clipping."""
    optim = config.optim
    rates = {
        "encoder": optim.encoder_rate,
        "dynamics": optim.model_rate,
        "critics": optim.critic_rate,
        "actor": optim.actor_rate,
    }
    parts, states, norms = {}, {}, {}
    for name, optimiser in optimisers(config).items():
        gradient, unravel = ravel_pytree(getattr(grads, name))
        norms[f"gradient/{name}"] = optax.tree.norm(gradient)
        direction, states[name] = optimiser.update(gradient, state.optimisers[name])
        rate: Float[Array, ""] = rates[name] * state.settings.learning_rate
        if name == "actor" and config.loss.actor_delay > 1:
            acts = state.step % config.loss.actor_delay == 0
            rate = jnp.where(acts, rate, 0.0)
            states[name] = _choose(acts, states[name], state.optimisers[name])
        parts[name] = jax.tree.map(
            lambda p, d, r=rate: p - r * d, getattr(state.networks, name), unravel(direction)
        )
    return Networks(**parts), states, norms


def _choose(condition: Array, new: optax.OptState, old: optax.OptState) -> optax.OptState:
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), new, old)


def _add(scales: Scales, statistics: Statistics) -> Scales:
    """The running scales after one more batch."""
    return Scales(*(getattr(scales, n).add(*getattr(statistics, n)) for n in statistics._fields))
