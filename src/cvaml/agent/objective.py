"""The loss of one member on one batch of real sequences: model, critics and actor in one gradient.

Stop-gradients decide who learns from what:

| term | encoder | model | critics | actor |
|---|---|---|---|---|
| value-aware, b = 0 | yes | yes | - | - |
| value-aware, b >= 1 | yes | yes | yes | - |
| auxiliary, reward, continuation, pull of σ | yes | yes | - | - |
| TD, real rows | yes | - | yes | - |
| TD, model rows | - | - | yes | - |
| actor | - | - | - | yes |
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from cvaml.agent.config import AgentConfig
from cvaml.agent.networks import Networks, ValueHead
from cvaml.agent.replay import Masks, Rows
from cvaml.agent.rollout import auxiliary, continuation_losses, reward_errors, rollout
from cvaml.agent.state import AgentState
from cvaml.agent.view import View, look, q_values, state_values, stop
from cvaml.losses import value_targets

Metrics = dict[str, Float[Array, ""]]


class Statistics(NamedTuple):
    """What the running scales learn from: values and weights of rows."""

    observation: tuple[Float[Array, "batch o"], Float[Array, " batch"]]
    value: tuple[Float[Array, " batch"], Float[Array, " batch"]]
    reward: tuple[Float[Array, " batch"], Float[Array, " batch"]]
    q: tuple[Float[Array, " batch"], Float[Array, " batch"]]


def objective(
    networks: Networks, state: AgentState, rows: Rows, key: PRNGKeyArray, config: AgentConfig
) -> tuple[Float[Array, ""], tuple[Metrics, Statistics]]:
    """The sum of all losses, weighted by the member's settings.

    Args:
        networks: what the gradient is taken of.
        state: everything else of the member; never differentiated.
        rows: `[batch, config.sequence_length]` sequences.
        key: for the model's samples and the target noise.
        config: static.

    Returns:
        The loss, its parts as metrics, and what the running scales learn from.
    """
    look_key, model_key, noise_key = jax.random.split(key, 3)
    view = look(networks, state, rows, look_key, config)
    model, model_metrics = model_loss(view, model_key, config)
    critic, critic_metrics, td_target = critic_loss(view, noise_key, config)
    actor, actor_metrics, q = actor_loss(view, config)
    reached = view.masks.exists[:, 1].astype(jnp.float32)
    ones = jnp.ones_like(reached)
    statistics = Statistics(
        observation=(rows.observation[:, 0], ones),
        value=(td_target, reached[: td_target.shape[0]]),
        reward=(rows.reward[:, 0], reached),
        q=(q, ones),
    )
    total = model + state.settings.critic * critic + actor
    return total, (model_metrics | critic_metrics | actor_metrics, statistics)


def model_loss(
    view: View, key: PRNGKeyArray, config: AgentConfig
) -> tuple[Float[Array, ""], Metrics]:
    """Value-aware, auxiliary, reward and continuation loss of the model, and its penalties."""
    variant, settings = config.variant, view.state.settings
    total: Float[Array, ""] = jnp.zeros(())
    metrics: Metrics = {}
    if not variant.has_model:
        return total, metrics
    m = variant.m
    noise = jax.random.normal(key, (m, config.samples, *view.z.shape))
    trajectories = rollout(
        view.networks.dynamics, view.z, view.rows.action[:, :m], noise, config.stochastic
    )
    exists = view.masks.exists[:, 1 : m + 1].astype(jnp.float32)
    if variant.loss is not None:
        value_aware, metrics = value_aware_loss(view, trajectories.latents, config)
        total = total + settings.vaml * value_aware
    if variant.aux:
        mixture = config.loss.multistep_aux == "mixture"
        losses = auxiliary(trajectories, view.later[:, :m], config.stochastic, mixture)
        if config.loss.aux_reduction == "mean":
            losses = losses / view.z.shape[-1]
        aux = _weighted_mean(losses, exists * _step_weights(config)[None])
        shrunk = spread_penalty(view.z, config.loss.spread_floor)
        metrics |= {"loss/aux": aux, "loss/spread": shrunk}
        total = total + settings.aux * aux + settings.spread * shrunk
    if config.stochastic:
        # Before the sigmoid, whose slope at the bounds is too small to lead back from there.
        away = trajectories.first.raw_log_std - config.network.raw_log_std_init
        pull = jnp.mean(jnp.square(away))
        metrics["loss/sigma_pull"] = pull
        total = total + settings.sigma_pull * pull
    rewards = reward_errors(trajectories, view.rows.reward[:, :m], view.reward_scale)
    reward = _weighted_mean(rewards, exists)
    ends = continuation_losses(trajectories, view.rows.terminated[:, :m])
    continuation = _weighted_mean(ends, exists)
    metrics |= {"loss/reward": reward, "loss/continuation": continuation}
    return total + settings.reward * (reward + continuation), metrics


def spread_penalty(z: Float[Array, "batch d"], floor: float) -> Float[Array, ""]:
    """How far the encodings have shrunk below the floor, as a logarithm; 0 above it.

    The likelihood per dimension grows by log c when encodings shrink by c, so on its own it draws
    them to a point. The penalty grows by log c too.
    """
    # Inside the root: a batch of equal encodings has a gradient as well.
    spread = jnp.mean(jnp.sqrt(jnp.var(z, axis=0) + 1e-12))
    return jnp.maximum(0.0, jnp.log(floor) - jnp.log(spread))


def value_aware_loss(
    view: View, latents: Float[Array, "k batch m d"], config: AgentConfig
) -> tuple[Float[Array, ""], Metrics]:
    """The variant's loss of each critic against its own target, averaged over both.

    Values and targets are divided by the value scale, an affine change of units that leaves the
    correction unbiased.
    """
    variant = config.variant
    head = ValueHead.of(config.network)
    critics = view.networks.critics if variant.trains_value else stop(view.state.target_critics)
    values = state_values(critics, view.networks.actor, latents, head)
    targets, valid = value_aware_targets(view, config)
    weights = valid * _step_weights(config)[None]
    assert variant.loss is not None

    def mean_loss(correction: str) -> Float[Array, ""]:
        def one(v: Float[Array, "k m"], y: Float[Array, " m"], w: Float[Array, " m"]) -> Array:
            return variant.loss(v, y, w, correction=correction)  # type: ignore[misc]

        per_row = jax.vmap(jax.vmap(one, in_axes=(1, 0, 0)), in_axes=(0, 0, None))
        losses = per_row(values / view.value_scale, targets / view.value_scale, weights)
        return _weighted_mean(jnp.mean(losses, axis=0), (jnp.sum(weights, axis=1) > 0) * 1.0)

    plain = mean_loss("none")
    corrected = plain if variant.correction == "none" else mean_loss(variant.correction)
    loss = plain + view.state.settings.correction * (corrected - plain)
    spread = jnp.var(values, axis=1, ddof=1) if values.shape[1] > 1 else jnp.zeros(targets.shape)
    metrics = {
        "loss/vaml": loss,
        "correction": (plain - corrected) * jnp.square(view.value_scale),
        "value_variance": _weighted_mean(jnp.mean(spread, axis=0), weights),
    }
    return loss, metrics


def value_aware_targets(
    view: View, config: AgentConfig
) -> tuple[Float[Array, "2 batch m"], Float[Array, "batch m"]]:
    """The b-step targets of the real states 1 .. m, and which of them the episode allows.

    For b = 0 each critic's own target value, for b >= 1 rewards and the smaller of the two. After
    a termination rewards and values are 0. Masked are targets that would reach behind a truncation,
    and for b = 0 terminal states: no critic is trained there, and the continuation says they end.
    """
    m, b = config.variant.m, config.variant.b
    masks = view.masks
    running = 1.0 - masks.ended
    valid = masks.exists[:, 1 : m + 1] & ~masks.crossed[:, 1 + b : m + b + 1]
    if b == 0:
        return view.later_values[:, :, :m], valid * running[:, 1 : m + 1]
    values = bootstrap(view.later_values[:, :, : m + b], view.state.settings.pessimism)
    values = values * running[:, 1 : m + b + 1]
    rewards = view.rows.reward[:, 1 : m + b] * running[:, 1 : m + b]
    discounts = config.discount * (1.0 - view.rows.terminated[:, 1 : m + b])
    discounts = discounts * running[:, 1 : m + b]
    targets = jax.vmap(value_targets, in_axes=(0, 0, 0, None))(rewards, discounts, values, b)
    return jnp.broadcast_to(targets[None], (2, *targets.shape)), valid.astype(jnp.float32)


def critic_loss(
    view: View, key: PRNGKeyArray, config: AgentConfig
) -> tuple[Float[Array, ""], Metrics, Float[Array, " batch"]]:
    """TD of both critics: several steps of real rows, one on-policy step of the model.

    Returns:
        The loss, metrics, and the targets.
    """
    head = ValueHead.of(config.network)
    networks, rows, imagined = view.networks, view.rows, view.imagined
    real = view.z.shape[0] - imagined.reward.shape[0]
    z = jnp.concatenate([view.z[:real], stop(view.z[real:])])
    on_policy = stop(jnp.tanh(view.before_tanh[real:]))
    action = jnp.concatenate([rows.action[:real, 0], on_policy])
    steps = config.loss.td_steps
    if config.loss.target_noise > 0:
        values, imagined_values = _smoothed_values(view, real, key, config)
    else:
        values, imagined_values = view.later_values[:, :real, :steps], imagined.values
    pessimism = view.state.settings.pessimism
    real_target = td_targets(rows, view.masks, bootstrap(values, pessimism), config.discount)
    runs = config.discount * imagined.continues
    imagined_target = imagined.reward + runs * bootstrap(imagined_values, pessimism)
    target = stop(jnp.concatenate([real_target, imagined_target]))
    outputs = jax.vmap(lambda critic: critic(z, action))(networks.critics)
    losses = jax.vmap(head.loss, in_axes=(0, None, None))(outputs, target, view.value_scale)
    # A model row starts at a real state, whatever happened on leaving it.
    weights = view.masks.exists[:, 1].at[real:].set(True).astype(jnp.float32)
    loss = _weighted_mean(jnp.mean(losses, axis=0), weights)
    q = head.decode(outputs)
    metrics = {
        "loss/critic": loss,
        "td_rmse": jnp.sqrt(_weighted_mean(jnp.mean(jnp.square(q - target[None]), 0), weights)),
        "q_mean": jnp.mean(q),
        "q_gap": jnp.mean(jnp.abs(q[0] - q[1])),
        "target_mean": _weighted_mean(target, weights),
        "target_max": jnp.max(target),
    }
    return loss, stop(metrics), target[:real]


def bootstrap(values: Float[Array, "2 *n"], pessimism: Float[Array, ""]) -> Float[Array, "*n"]:
    """One value out of both target critics': their mean less `pessimism` half differences."""
    half = 0.5 * jnp.abs(values[0] - values[1])
    return jnp.mean(values, axis=0) - pessimism * half


def td_targets(
    rows: Rows, masks: Masks, values: Float[Array, "n steps"], discount: float
) -> Float[Array, " n"]:
    """The rewards of up to `steps` steps, then the value of the last state they reach.

    An episode that is truncated on the way bootstraps from its last state, one that terminates
    does not bootstrap.

    Args:
        rows: sequences of more than `steps` rows; only the first n count.
        masks: of the rows.
        values: of the states 1 .. steps.
        discount: per step.

    Returns:
        The target of each sequence's first state; meaningless where state 1 does not exist.
    """
    count, steps = values.shape
    target = values[:, -1]
    for t in reversed(range(steps)):
        if t + 1 < steps:
            target = jnp.where(masks.exists[:count, t + 2], target, values[:, t])
        runs = discount * (1.0 - rows.terminated[:count, t])
        target = rows.reward[:count, t] + runs * target
    return target


def _smoothed_values(
    view: View, real: int, key: PRNGKeyArray, config: AgentConfig
) -> tuple[Float[Array, "2 real steps"], Float[Array, "2 n"]]:
    """Values of the successors, real and imagined, by the target critics at the actor's action
    plus clipped noise (TD3)."""
    later = view.later[:real, : config.loss.td_steps]
    z = jnp.concatenate([later.reshape(-1, later.shape[-1]), view.imagined.successor])
    action = jnp.tanh(view.networks.actor(z))
    limit = config.loss.target_noise_clip
    noise = config.loss.target_noise * jax.random.normal(key, action.shape)
    action = jnp.clip(action + jnp.clip(noise, -limit, limit), -1, 1)
    values = q_values(view.state.target_critics, z, action, ValueHead.of(config.network))
    split = later.shape[0] * later.shape[1]
    return values[:, :split].reshape(2, *later.shape[:2]), values[:, split:]


def actor_loss(
    view: View, config: AgentConfig
) -> tuple[Float[Array, ""], Metrics, Float[Array, " batch"]]:
    """Minus the mean value of the actor's action, in running standard deviations of Q, plus the
    penalty that keeps the tanh from saturating.

    Returns:
        The loss, metrics, and the values of the actions.
    """
    z, before = stop(view.z), view.before_tanh
    action = jnp.tanh(before)
    values = q_values(stop(view.networks.critics), z, action, ValueHead.of(config.network))
    q = jnp.mean(values, axis=0)
    scale = jnp.maximum(view.state.scales.q.std, 0.01)
    square = jnp.mean(jnp.square(before))
    loss = -jnp.mean(q) / scale + view.state.settings.pre_tanh * square
    metrics = {
        "loss/actor": loss,
        "value": jnp.mean(q),
        "actor_saturated": jnp.mean(jnp.abs(action) > 0.98),
        "actor_pre_tanh": jnp.sqrt(square),
    }
    return loss, stop(metrics), stop(q)


def _step_weights(config: AgentConfig) -> Float[Array, " m"]:
    """Weights of the steps 1 .. m."""
    m = config.variant.m
    if config.loss.step_weights == "uniform":
        return jnp.ones(m)
    return jnp.zeros(m).at[-1].set(1.0)


def _weighted_mean(x: Float[Array, "*n"], weights: Float[Array, "*n"]) -> Float[Array, ""]:
    """Weighted mean, 0 if every weight is 0."""
    total = jnp.sum(weights)
    return jnp.sum(x * weights) / jnp.where(total == 0, 1, total)
