"""What of a replay goes into a checkpoint: the rows since the last one, and where they belong."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from cvaml.agent.replay import Replay
from cvaml.runs.arrays import place_like
from cvaml.runs.checkpoints import Rows

# Chunks are rounded up, so that few lengths are compiled; what is behind the end is harmless.
_ROUND = 512


def new_rows(
    replay: Replay, before: Int[np.ndarray, " S"], now: Int[np.ndarray, " S"]
) -> Rows | None:
    """The rows that changed between two checkpoints, copied to the host.

    Rows are numbered from the first one ever added; row n lies at place n modulo the capacity.
    Members have different counts, since every episode's end takes a row: the chunk spans all.

    Args:
        replay: of the population.
        before: rows each member had at the checkpoint before.
        now: rows each member has.

    Returns:
        The chunk; None if there is nothing new.
    """
    capacity = replay.experience.reward.shape[2]
    # The row at `now` is written, too: the newest observation, see `replay`.
    start, stop = int(before.min()), int(now.max()) + 1
    if np.array_equal(before, now):
        return None
    length = min(-(-(stop - start) // _ROUND) * _ROUND, capacity)
    start = max(start, stop - capacity)
    fields = _take(replay, jnp.arange(start, start + length) % capacity)
    arrays = {
        name: np.moveaxis(np.array(values), 1, 0) for name, values in jax.device_get(fields).items()
    }
    # Every place of the ring lies in these rows, whichever member wrote to it last.
    return Rows(start, arrays, oldest=max(0, stop - capacity))


def with_rows(replay: Replay, chunks: Sequence[Rows]) -> Replay:
    """The replay with the stored rows at their places, on the same devices."""
    capacity = replay.experience.reward.shape[2]

    def restore(name: str, leaf: Array) -> Array:
        whole = np.zeros(leaf.shape, leaf.dtype)
        for chunk in chunks:
            rows = chunk.arrays[name]
            places = np.arange(chunk.start, chunk.start + len(rows)) % capacity
            whole[:, 0, places] = np.moveaxis(rows, 0, 1)
        return place_like(leaf, whole)

    experience = replay.experience
    fields = {name: restore(name, leaf) for name, leaf in experience._asdict().items()}
    return replay.replace(experience=experience._replace(**fields))


@jax.jit
def _take(replay: Replay, places: Int[Array, " n"]) -> dict[str, Array]:
    fields = replay.experience._asdict()
    return {name: jnp.take(leaf[:, 0], places, axis=1) for name, leaf in fields.items()}
