import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cvaml.agent import population, snapshot
from cvaml.agent.state import Spec
from cvaml.runs.checkpoints import Checkpoints

SPEC = Spec(2, 1)


@pytest.mark.parametrize(("capacity", "round_to"), [(23, 4), (400, 512)])
def test_chunks_put_the_replay_back(tmp_path, monkeypatch, generator, round_to, capacity):
    """Members end episodes at their own times; the small replay overwrites itself many times."""
    monkeypatch.setattr(snapshot, "_ROUND", round_to)
    checkpoints = Checkpoints(tmp_path)
    replay = population.init_replay(SPEC, 3, capacity)
    rows, stored = np.zeros(3, np.int64), np.zeros(3, np.int64)
    for step in range(1, 121):
        ended = generator.random(3) < [0.02, 0.3, 0.0]
        numbers = np.full((3, 1), step, np.float32)
        seen = np.repeat(numbers, 2, axis=1)
        replay = population.add(
            replay, seen, numbers, numbers[:, 0], ended, np.zeros(3, bool), seen + 0.5
        )
        rows += 1 + ended
        if generator.random() < 0.1 or step == 120:
            checkpoints.save(
                step, {"step": np.ones(1)}, {}, snapshot.new_rows(replay, stored, rows)
            )
            checkpoints.wait()
            stored = rows.copy()
    found = checkpoints.restore()
    assert found is not None
    if capacity == 23:
        assert len(found.rows) < 10  # what was overwritten is gone
    empty = jax.tree.map(jnp.zeros_like, replay)
    again = snapshot.with_rows(empty, found.rows)
    for name, leaf in replay.experience._asdict().items():
        np.testing.assert_array_equal(leaf, getattr(again.experience, name), err_msg=name)


def test_nothing_new_is_no_chunk():
    replay = population.init_replay(SPEC, 1, 8)
    assert snapshot.new_rows(replay, np.array([3]), np.array([3])) is None
