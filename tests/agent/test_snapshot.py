"""Checkpoints of a replay that has run full: every place comes back as it was."""

import jax
import numpy as np

from cvaml.agent import population
from cvaml.agent.snapshot import new_rows, with_rows
from cvaml.agent.state import Spec


def test_rows_of_a_full_replay_come_back():
    spec, members, capacity = Spec(1, 1), 2, 16
    replay = population.init_replay(spec, members, capacity)
    rows = np.zeros(members, np.int64)
    stored, chunks = rows.copy(), []
    for step in range(40):
        ended = np.array([step % 3 == 2, step % 5 == 4])  # the members' counts drift apart
        number = np.full((members, 1), step, np.float32) + np.array([[0.0], [0.5]], np.float32)
        off = np.zeros(members, bool)
        replay = population.add(replay, number, number, number[:, 0], off, ended, number + 100)
        rows += 1 + ended
        if step % 7 == 6:
            chunk = new_rows(replay, stored, rows)
            # As the checkpoints keep them: whole chunks, as long as any of their rows is needed.
            chunks = [c for c in chunks if c.start + len(c.arrays["reward"]) > chunk.oldest]
            covered = {r for c in [*chunks, chunk] for r in range(c.start, rows.max() + 1)}
            assert set(range(chunk.oldest, int(rows.max()) + 1)) <= covered
            chunks.append(chunk)
            stored = rows.copy()
            empty = population.init_replay(spec, members, capacity)
            restored = with_rows(empty, chunks)
            for mine, theirs in zip(
                jax.tree.leaves(restored.experience),
                jax.tree.leaves(replay.experience),
                strict=True,
            ):
                np.testing.assert_array_equal(mine, theirs)
