"""The fixed table of metric names, and the estimates too costly for every update."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from cvaml.agent.config import AgentConfig
from cvaml.agent.networks import ValueHead
from cvaml.agent.objective import Metrics, value_aware_targets
from cvaml.agent.replay import Replay, sample_member
from cvaml.agent.rollout import rollout
from cvaml.agent.state import AgentState
from cvaml.agent.view import View, look, state_values
from cvaml.losses import cvaml_loss, gaussian_entropy

ERROR_SAMPLES = 16

METRICS: dict[str, str] = {
    "train_return": "Undiscounted return of a training episode, exploration on.",
    "eval_return": "Undiscounted return of an evaluation episode, exploration off.",
    "optimism": "Mean V of an evaluation's states minus the discounted return that followed.",
    "loss/vaml": "Value-aware loss, in units of the value scale; may be negative.",
    "loss/aux": "Auxiliary latent loss.",
    "loss/spread": "How far the encodings' spread lies below its floor, as a logarithm.",
    "loss/sigma_pull": "Mean squared distance of the log-std head from its start.",
    "loss/reward": "Squared reward error, in units of the reward scale.",
    "loss/continuation": "Binary cross-entropy of whether the episode goes on.",
    "loss/critic": "Mean of both critics' TD losses (cross-entropy, or squared error).",
    "loss/actor": "Minus the scaled value of the actor's actions, plus the pre-tanh penalty.",
    "correction": "Mean of what the variance correction subtracts, in squared value units.",
    "value_variance": "Mean variance of V over the k model samples of a state (k >= 2).",
    "td_rmse": "Root mean squared TD error of both critics, in value units.",
    "q_mean": "Mean Q of the critics' batch.",
    "q_gap": "Mean absolute difference between the two critics.",
    "target_mean": "Mean TD target.",
    "target_max": "Largest TD target of the batch.",
    "value": "Mean V = Q(z, π(z)) of replayed states, by the online critics.",
    "actor_saturated": "Share of actor outputs with |a| > 0.98.",
    "actor_pre_tanh": "Root mean square of the actor's pre-tanh outputs.",
    "gradient/encoder": "Gradient norm of the encoder before clipping.",
    "gradient/dynamics": "Gradient norm of the latent model before clipping.",
    "gradient/critics": "Gradient norm of the critics before clipping.",
    "gradient/actor": "Gradient norm of the actor before clipping.",
    "vaml_error": "U-statistic of (E V(model) - y)² with 16 samples; may be negative.",
    "model_entropy": "Mean differential entropy of the Gaussian model's next latent, in nats.",
    "sigma_mean": "Mean standard deviation of the Gaussian model.",
    "sigma_at_bounds": "Share of log σ within 1 % of the range of a bound.",
    "latent_explained": "1 - squared error / variance of the predicted next latent.",
    "value_correlation": "Correlation over the batch of the model's mean value with its target.",
    "reward_explained": "1 - squared error of the predicted reward / running reward variance.",
    "latent_std": "Mean over dimensions of the standard deviation of encodings over the batch.",
    "planner/entropy": "Entropy of the elites' weights; log(elites) if the temperature is inert.",
    "planner/spread": "Standard deviation of the elites' scores, in value units.",
    "planner/gain": "Weighted score of the elites minus that of the actor's action.",
    "planner/std": "Mean standard deviation of the refined distribution.",
    "planner/distance": "Mean squared distance per dimension of the action from the actor's.",
    "physics_errors": "Episodes cut short by a diverged simulation so far.",
    "restarts": "Episodes begun anew because a resumed environment did not come back.",
}
"""Every metric a run may hold; timing is under `time/`."""


def diagnose_member(
    state: AgentState, replay: Replay, key: PRNGKeyArray, config: AgentConfig
) -> Metrics:
    """The costly metrics on one fresh batch, the same batch for every variant of equal m + b.

    Args:
        state: of the member.
        replay: read only.
        key: choice of the batch and the model's samples.
        config: static.

    Returns:
        The metrics `vaml_error` to `latent_std` of the table.
    """
    batch_key, look_key, noise_key = jax.random.split(key, 3)
    rows = sample_member(replay, batch_key, config.batch_size, config.sequence_length)
    view = look(state.networks, state, rows, look_key, config)
    metrics = {"latent_std": jnp.mean(jnp.std(view.z, axis=0))}
    if not config.variant.has_model:
        return metrics
    return metrics | _model_metrics(view, noise_key, config)


def _model_metrics(view: View, key: PRNGKeyArray, config: AgentConfig) -> Metrics:
    m = config.variant.m
    noise = jax.random.normal(key, (m, ERROR_SAMPLES, *view.z.shape))
    dynamics = view.networks.dynamics
    trajectories = rollout(dynamics, view.z, view.rows.action[:, :m], noise, config.stochastic)
    critics = view.networks.critics if config.variant.trains_value else view.state.target_critics
    last = trajectories.latents[:, :, -1]
    values = state_values(critics, view.networks.actor, last, ValueHead.of(config.network))
    targets, valid = value_aware_targets(view, config)
    targets, weights = targets[..., -1], valid[:, -1]
    errors = jax.vmap(jax.vmap(cvaml_loss, in_axes=(1, 0)))(values, targets)
    first = trajectories.first
    reached = view.masks.exists[:, 1].astype(jnp.float32)
    correlations = jax.vmap(_correlation, in_axes=(0, 0, None))(
        jnp.mean(values, axis=1), targets, weights
    )
    metrics = {
        "vaml_error": _mean(jnp.mean(errors, axis=0), weights),
        "value_correlation": jnp.mean(correlations),
        "latent_explained": _explained(first.mean[0], view.later[:, 0], reached),
        # Whole batches may hold the same reward: the running variance is the fair measure.
        "reward_explained": 1
        - _mean(jnp.square(first.reward[0] - view.rows.reward[:, 0]), reached)
        / jnp.maximum(view.state.scales.reward.variance, 1e-12),
    }
    if not config.stochastic:
        return metrics
    low, high = dynamics.bounds
    place = (first.log_std - low) / (high - low)
    return metrics | {
        "model_entropy": jnp.mean(jax.vmap(gaussian_entropy)(first.log_std[0])),
        "sigma_mean": jnp.mean(jnp.exp(first.log_std)),
        "sigma_at_bounds": jnp.mean((place < 0.01) | (place > 0.99)),
    }


def _mean(x: Float[Array, " n"], weights: Float[Array, " n"]) -> Float[Array, ""]:
    return jnp.sum(x * weights) / jnp.maximum(jnp.sum(weights), 1)


def _explained(
    prediction: Float[Array, "n d"], target: Float[Array, "n d"], weights: Float[Array, " n"]
) -> Float[Array, ""]:
    """1 - squared error / variance, each summed over dimensions."""
    centre = jax.vmap(_mean, in_axes=(1, None))(target, weights)
    error = _mean(jnp.sum(jnp.square(prediction - target), axis=1), weights)
    variance = _mean(jnp.sum(jnp.square(target - centre[None]), axis=1), weights)
    # A batch in which nothing varies has nothing to explain: the floor keeps it from dominating.
    return 1 - error / jnp.maximum(variance, 1e-6)


def _correlation(
    x: Float[Array, " n"], y: Float[Array, " n"], weights: Float[Array, " n"]
) -> Float[Array, ""]:
    x, y = x - _mean(x, weights), y - _mean(y, weights)
    scale = jnp.sqrt(_mean(x * x, weights) * _mean(y * y, weights))
    return _mean(x * y, weights) / jnp.maximum(scale, 1e-12)
