import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agent_cases import filled

from cvaml.agent import population
from cvaml.agent.replay import Rows, sample_member, sequence_masks
from cvaml.agent.state import Spec
from cvaml.types import UserError

SPEC = Spec(2, 1)


def fill(ends, rows, steps, members=1):
    """Transitions that encode member, episode and time; `ends[t]` is '', 'T' or 'X' (cut off)."""
    replay = population.init_replay(SPEC, members, rows)
    episode, time = np.zeros(members), np.zeros(members)
    for t in range(steps):
        end = [ends(member, t) for member in range(members)]
        terminated = np.array([e == "T" for e in end])
        truncated = np.array([e == "X" for e in end])
        observation = np.stack([episode, time], 1).astype(np.float32)
        successor = np.stack([episode, time + 1], 1).astype(np.float32)
        action = (10 * episode + time)[:, None].astype(np.float32)
        reward = (100 * episode + time).astype(np.float32)
        replay = population.add(
            replay, observation, action, reward, terminated, truncated, successor
        )
        over = terminated | truncated
        episode, time = episode + over, np.where(over, 0, time + 1)
    return replay


def sequences(replay, length, batch=400, member=0):
    one = jax.tree.map(lambda x: x[member], replay)
    rows = sample_member(one, jax.random.key(0), batch, length)
    return rows, sequence_masks(rows)


@pytest.mark.parametrize(("rows", "steps"), [(60, 40), (17, 200), (16, 31)])
def test_sequences_never_cross_an_episode_end(rows, steps):
    replay = fill(lambda member, t: "XT"[t % 2] if t % 5 == 4 else "", rows, steps)
    found, masks = sequences(replay, 4)
    episode, time = found.observation[..., 0], found.observation[..., 1]
    exists = np.asarray(masks.exists)
    assert exists[:, 1:].any()
    assert not exists[:, 1:].all()
    same = np.asarray(episode == episode[:, :1])
    in_order = np.asarray(time == time[:, :1] + jnp.arange(4)[None])
    assert (same & in_order)[exists].all()
    # What is stored with a row belongs to it, unless nothing left it.
    leaves = ~np.asarray(found.final)
    np.testing.assert_array_equal(found.action[..., 0][leaves], (10 * episode + time)[leaves])
    np.testing.assert_array_equal(found.reward[leaves], (100 * episode + time)[leaves])
    assert (np.asarray(found.reward)[~leaves] == 0).all()


def test_every_transition_is_sampled_equally_often():
    replay = fill(lambda member, t: "X" if t % 5 == 4 else "", 100, 20)
    found, masks = sequences(replay, 2, batch=20_000)
    starts = np.asarray(found.reward[:, 0])[np.asarray(masks.exists[:, 1])]
    names, counts = np.unique(starts, return_counts=True)
    assert len(names) == 20
    assert counts.max() / counts.min() < 1.3


def test_masks_by_hand():
    flags = jnp.zeros((3, 4), bool)
    # Row 0 runs through; row 1 is cut off at state 1; row 2 terminates on leaving state 1.
    final = flags.at[1, 1].set(True).at[2, 2].set(True)
    terminated = flags.at[2, 1].set(True)
    zeros = jnp.zeros((3, 4))
    masks = sequence_masks(Rows(zeros[..., None], zeros[..., None], zeros, terminated, final))
    np.testing.assert_array_equal(masks.exists, [[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0]])
    np.testing.assert_array_equal(masks.ended, [[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 1, 1]])
    np.testing.assert_array_equal(masks.crossed, [[0, 0, 0, 0], [0, 0, 1, 1], [0, 0, 0, 0]])


def test_members_end_their_episodes_independently():
    replay = fill(lambda member, t: "X" if t % (5 + member) == 4 + member else "", 80, 30, 2)
    assert [int(i) for i in replay.current_index] == [30 + 6, 30 + 5]
    for member in range(2):
        found, masks = sequences(replay, 2, member=member)
        last = np.asarray(found.observation[:, 0, 1])[np.asarray(masks.exists[:, 1])].max()
        assert last == 4 + member


def test_the_newest_transition_is_kept_when_the_replay_wraps():
    replay = fill(lambda member, t: "", 8, 21)
    found, masks = sequences(replay, 2)
    times = np.unique(np.asarray(found.observation[:, 0, 1])[np.asarray(masks.exists[:, 1])])
    assert times.min() >= 21 - 8
    assert times.max() == 19


def test_bytes_are_what_is_allocated():
    spec = Spec(223, 38)
    rows = population.replay_rows(500_000, 500)
    assert rows == 501_001
    shapes = jax.eval_shape(lambda: population._init_replay(spec, 8, rows))
    allocated = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(shapes))
    assert population.replay_bytes(spec, 8, rows) == pytest.approx(allocated, rel=0.001)
    assert allocated == pytest.approx(4.21e9, rel=0.01)
    small = filled(SPEC, 3, 5)
    held = sum(x.nbytes for x in jax.tree.leaves(small))
    assert population.replay_bytes(SPEC, 3, 12) == held


def test_too_large_a_replay_is_refused_before_allocating():
    with pytest.raises(UserError, match="GiB are free"):
        population.init_replay(Spec(1000, 10), 1000, 10**9)


def test_steps_on_the_device_are_stored_as_those_on_the_host_are():
    host = population.init_replay(SPEC, 2, 8)
    device = population.init_replay(SPEC, 2, 8)
    observation, action = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[0.5], [-0.5]])
    ends = np.array([True, False]), np.array([False, True])
    step = (observation, action, np.array([7.0, 8.0]), *ends, observation + 1)
    host = population.add(host, *step)
    device = jax.jit(population.add)(device, *map(jnp.asarray, step))
    for one, other in zip(jax.tree.leaves(host), jax.tree.leaves(device), strict=True):
        np.testing.assert_array_equal(one, other)
    assert host.experience.reward[:, 0, 0].tolist() == [7.0, 8.0]
    assert host.experience.terminated[:, 0, 0].tolist() == [True, False]
    assert host.current_index.tolist() == [2, 2]
