"""Replay of one member on the device: a Flashbax trajectory buffer that knows where episodes end.

A row holds an observation and, unless it is the last of its episode, the action, the reward and
whether the episode terminated on leaving it. The last observation of an episode takes one extra
row marked `final`, so observations are stored once and every successor is the next row. While
an episode runs its newest observation already stands there as a `final` row, which the next step
overwrites. A sampled sequence may run over an episode's end; `sequence_masks` says which of its
states belong to the episode it starts in.
"""

from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from flashbax.buffers import trajectory_buffer as flashbax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from cvaml.agent.state import Spec

Replay: TypeAlias = flashbax.TrajectoryBufferState


class Rows(NamedTuple):
    """Rows of a replay, or sequences of them."""

    observation: Float[Array, "*n o"]
    action: Float[Array, "*n a"]
    """Zero in a final row."""
    reward: Float[Array, "*n"]
    """Received on leaving the row; zero in a final row."""
    terminated: Bool[Array, "*n"]
    """Whether leaving the row ended the episode for good."""
    final: Bool[Array, "*n"]
    """Whether the row is the last of its episode: nothing is known about leaving it."""


class Masks(NamedTuple):
    """What of a sequence of L rows belongs to the episode of its first row."""

    exists: Bool[Array, "batch L"]
    """State t was reached from state 0."""
    ended: Bool[Array, "batch L"]
    """The episode had terminated on arriving at state t: its value and all later rewards are 0."""
    crossed: Bool[Array, "batch L"]
    """State t lies behind a truncation: nothing may be computed from it."""


def init_replay_member(spec: Spec, rows: int) -> Replay:
    """An empty replay of that many rows."""
    row = Rows(
        observation=jnp.zeros(spec.observation_size),
        action=jnp.zeros(spec.action_size),
        reward=jnp.zeros(()),
        terminated=jnp.zeros((), bool),
        final=jnp.zeros((), bool),
    )
    return flashbax.init(row, add_batch_size=1, max_length_time_axis=rows)


def row_bytes(spec: Spec) -> int:
    """Bytes of one row: float32 numbers and two flags."""
    return 4 * (spec.observation_size + spec.action_size + 1) + 2


def add_member(
    replay: Replay,
    observation: Float[Array, " o"],
    action: Float[Array, " a"],
    reward: Float[Array, ""],
    terminated: Bool[Array, ""],
    truncated: Bool[Array, ""],
    successor: Float[Array, " o"],
) -> Replay:
    """Stores one transition; the oldest rows make room once the replay is full.

    Args:
        replay: where to add; its buffers are reused if donated.
        observation: before the action.
        action: taken.
        reward: received.
        terminated: the episode ended for good, no bootstrap.
        truncated: the episode was cut off, its value goes on.
        successor: the observation after the action, before any reset.

    Returns:
        The replay, longer by one row, or by two if the episode ended.
    """
    off = jnp.zeros((), bool)
    pair = Rows(
        observation=jnp.stack([observation, successor]),
        action=jnp.stack([action, jnp.zeros_like(action)]),
        reward=jnp.stack([reward, jnp.zeros_like(reward)]),
        terminated=jnp.stack([terminated, off]),
        final=jnp.stack([off, ~off]),
    )
    rows = replay.experience.reward.shape[1]
    end = replay.current_index + 1 + (terminated | truncated).astype(replay.current_index.dtype)
    added = flashbax.add(replay, Rows(*(leaf[None] for leaf in pair)))
    return added.replace(current_index=end % rows, is_full=replay.is_full | (end >= rows))


def packed(
    observation: Float[Array, "S o"] | Float[np.ndarray, "S o"],
    action: Float[Array, "S a"] | Float[np.ndarray, "S a"],
    reward: Float[Array, " S"] | Float[np.ndarray, " S"],
    terminated: Bool[Array, " S"] | Bool[np.ndarray, " S"],
    truncated: Bool[Array, " S"] | Bool[np.ndarray, " S"],
    successor: Float[Array, "S o"] | Float[np.ndarray, "S o"],
) -> Float[Array, "S p"] | Float[np.ndarray, "S p"]:
    """One step of all members as one array: a single copy to the device instead of six.

    Arrays that are on the device, or are being traced, stay there.
    """
    columns = (reward, terminated, truncated)
    parts = (observation, action, *(x[:, None] for x in columns), successor)
    if all(isinstance(x, np.ndarray) for x in parts):
        return np.concatenate(parts, axis=1, dtype=np.float32)
    return jnp.concatenate([jnp.asarray(x, jnp.float32) for x in parts], axis=1)


def end_columns(observation_size: int, action_size: int) -> slice:
    """Where `packed` holds whether a step terminated and whether it was truncated."""
    start = observation_size + action_size + 1
    return slice(start, start + 2)


def add_packed_member(replay: Replay, step: Float[Array, " p"]) -> Replay:
    """`add_member` for one row of `packed`."""
    sizes = (replay.experience.observation.shape[-1], replay.experience.action.shape[-1])
    observation, action, outcome, successor = jnp.split(
        step, [sizes[0], sum(sizes), sum(sizes) + 3]
    )
    reward, terminated, truncated = outcome
    return add_member(replay, observation, action, reward, terminated > 0, truncated > 0, successor)


def sample_member(replay: Replay, key: PRNGKeyArray, batch: int, length: int) -> Rows:
    """Sequences of consecutive rows, uniform over all starts; mask them by `sequence_masks`."""
    with jax.numpy_rank_promotion("allow"):  # Flashbax adds shapes [batch, 1] and [length]
        rows: Rows = flashbax.sample(replay, key, batch, length, period=1).experience
    return rows


def sequence_masks(rows: Rows) -> Masks:
    """Which states of sampled sequences belong to the episode they start in."""
    before = jnp.zeros_like(rows.final[:, :1])
    ended = _any_before(rows.terminated, before)
    crossed = _any_before(rows.final & ~ended, before)
    ended_earlier = jnp.concatenate([before, ended[:, :-1]], axis=1)
    return Masks(exists=~crossed & ~ended_earlier, ended=ended, crossed=crossed)


def _any_before(flags: Bool[Array, "batch L"], first: Bool[Array, "batch 1"]) -> Bool[Array, "b L"]:
    """Whether a flag was set at any earlier position."""
    seen = jnp.cumsum(flags.astype(jnp.int32), axis=1) > 0
    return jnp.concatenate([first, seen[:, :-1]], axis=1)
