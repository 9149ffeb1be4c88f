"""The batched study tasks against dm_control itself, and what a member may not depend on."""

import os
import subprocess
import sys

import numpy as np
import pytest
from dm_control.rl.control import PhysicsError
from mujoco import mjtState

from cvaml.envs import VectorEnv, dmc, make_env
from cvaml.envs.member import load_task
from cvaml.types import UserError

HUMANOIDS = ("humanoid-stand", "humanoid-walk", "humanoid-run")
DOGS = ("dog-stand", "dog-walk", "dog-trot", "dog-run")
INTEGRATION = mjtState.mjSTATE_INTEGRATION.value


def uniform_actions(steps, members, size):
    return np.random.default_rng(3).uniform(-1, 1, (steps, members, size))


def smooth_actions(steps, members, size):
    phase = np.random.default_rng(4).uniform(0, 2 * np.pi, (members, size))
    rate = np.random.default_rng(5).uniform(0.02, 0.3, (members, size))
    return 0.9 * np.sin(np.arange(steps)[:, None, None] * rate + phase)


def follow_dm_control(tasks, actions_of, agent_steps):
    """Steps dm_control and the batch side by side; the members of the batch have mixed tasks."""
    env = make_env(tasks, range(len(tasks)), threads=2)
    references = [load_task(task, seed) for seed, task in enumerate(tasks)]
    first = env.reset()
    for row, reference in zip(first, references, strict=True):
        seen = reference.reset().observation["observations"]
        np.testing.assert_array_equal(row, seen.astype(np.float32))
    for actions in actions_of(agent_steps, env.members, env.action_size):
        reward, error = env.simulate(actions)
        obs, rows = env._body.observe(), env.state()["simulator"]
        assert not error.any()
        for member, reference in enumerate(references):
            twice = [reference.step(actions[member]) for _ in range(2)]
            state = reference.physics.get_state(INTEGRATION)
            np.testing.assert_array_equal(rows[member], state)
            expected = twice[-1].observation["observations"]
            np.testing.assert_allclose(obs[member], expected, rtol=0, atol=1e-9)
            assert abs(reward[member] - sum(step.reward for step in twice)) < 1e-9
    return references


@pytest.mark.parametrize("actions_of", [uniform_actions, smooth_actions])
@pytest.mark.parametrize("tasks", [HUMANOIDS, DOGS], ids=["humanoids", "dogs"])
def test_follows_dm_control(tasks, actions_of):
    follow_dm_control(tasks, actions_of, agent_steps=20)


@pytest.mark.slow
@pytest.mark.parametrize("actions_of", [uniform_actions, smooth_actions])
@pytest.mark.parametrize("tasks", [HUMANOIDS, DOGS], ids=["humanoids", "dogs"])
def test_follows_dm_control_over_whole_episodes(tasks, actions_of):
    references = follow_dm_control(tasks, actions_of, agent_steps=500)
    assert all(reference._reset_next_step for reference in references)  # their episodes ended, too


@pytest.mark.parametrize("tasks", [HUMANOIDS, DOGS], ids=["humanoids", "dogs"])
def test_rewards_of_good_behaviour_equal_dm_controls(tasks):
    """Random actions never stand, let alone run: put the bodies upright and give them a speed."""
    env = make_env(tasks, range(len(tasks)))
    env.reset()
    references = [load_task(task) for task in tasks]
    actions = np.full((env.members, env.action_size), 0.1)
    best = np.zeros(env.members)
    for speed in (0.0, 0.4, 1.2, 2.5, 6.0, 11.0, 20.0):
        stored, expected = env.state(), []
        for member, reference in enumerate(references):
            reference.reset()
            with reference.physics.reset_context():  # upright, in the model's default pose
                reference.physics.data.qpos[2] += 0.2 if tasks == HUMANOIDS else -0.02
                reference.physics.data.qvel[0] = speed
            stored["simulator"][member] = reference.physics.get_state(INTEGRATION)
            expected.append(sum(reference.step(actions[member]).reward for _ in range(2)))
        env.restore(stored)
        reward, _ = env.simulate(actions)
        np.testing.assert_allclose(reward, expected, rtol=0, atol=1e-9)
        best = np.maximum(best, reward)
    assert (best > 1.2).all()  # of 2


@pytest.fixture
def humanoids() -> VectorEnv:
    env = make_env(HUMANOIDS, [0, 1, 2], threads=2)
    env.reset()
    return env


def trajectory(env, agent_steps, member=None, seed=0):
    """Observations and rewards under a fixed action sequence; of one member where asked."""
    generator = np.random.default_rng(seed)
    seen = []
    for _ in range(agent_steps):
        row = generator.uniform(-1, 1, env.action_size)
        step = env.step(np.tile(row, (env.members, 1)))
        seen.append(np.concatenate([step.obs, step.reward[:, None], step.final_obs], axis=1))
    result = np.stack(seen, axis=1)
    return result if member is None else result[member]


def test_sizes_and_kinds():
    humanoid, dog = make_env("humanoid-walk", [0]), make_env("dog-run", [0])
    assert (humanoid.observation_size, humanoid.action_size) == (67, 21)
    assert (dog.observation_size, dog.action_size) == (223, 38)
    assert humanoid.action_repeat == dog.action_repeat == 2
    assert isinstance(humanoid, VectorEnv)


def test_same_seed_same_trajectory_at_any_thread_count_and_company():
    def run(tasks, seeds, threads, member):
        env = make_env(tasks, seeds, threads=threads)
        env.reset()
        return trajectory(env, 12, member)

    alone = run(["humanoid-run"], [7], 1, 0)
    np.testing.assert_array_equal(alone, run(["humanoid-run"] * 5, [1, 2, 7, 3, 4], 2, 2))
    np.testing.assert_array_equal(alone, run([*HUMANOIDS, "humanoid-walk"], [7] * 4, 4, 2))
    np.testing.assert_array_equal(alone, run(["humanoid-run"] * 2, [7, 8], 0, 0))
    assert not np.array_equal(alone, run(["humanoid-run"], [8], 1, 0))


def test_an_episode_is_cut_off_and_goes_on_from_dm_controls_next_initial_state(monkeypatch):
    monkeypatch.setattr(dmc, "EPISODE_STEPS", 8)
    env = make_env("humanoid-walk", [5, 6])
    env.reset()
    env.reset_member(1)
    reference = load_task("humanoid-walk", 5)
    reference.reset()
    actions = np.zeros((2, 21))
    steps = [env.step(actions) for _ in range(4)]
    assert not any(step.truncated.any() for step in steps[:3])
    last = steps[3]
    assert last.truncated.all()
    assert not last.terminated.any()
    assert not last.physics_error.any()
    for _ in range(8):
        successor = reference.step(actions[0]).observation["observations"]
    np.testing.assert_allclose(last.final_obs[0], successor, atol=1e-6)
    following = reference.reset().observation["observations"]
    np.testing.assert_array_equal(last.obs[0], following.astype(np.float32))
    np.testing.assert_array_equal(env.obs, last.obs)
    np.testing.assert_array_equal(steps[0].obs, steps[0].final_obs)
    again = env.step(actions)  # nothing of the old episode is left in the simulator
    for _ in range(2):
        successor = reference.step(actions[0]).observation["observations"]
    state = reference.physics.get_state(INTEGRATION)
    np.testing.assert_array_equal(env.state()["simulator"][0], state)
    np.testing.assert_allclose(again.obs[0], successor, atol=1e-6)
    assert not again.truncated.any()


@pytest.mark.parametrize(("action_repeat", "agent_steps"), [(1, 8), (2, 4), (3, 3)])
def test_action_repeat_sums_rewards_within_the_episode(monkeypatch, action_repeat, agent_steps):
    monkeypatch.setattr(dmc, "EPISODE_STEPS", 8)
    env = make_env("humanoid-stand", [0], action_repeat=action_repeat)
    env.reset()
    steps = [env.step(np.zeros((1, 21))) for _ in range(agent_steps)]
    assert [bool(step.truncated[0]) for step in steps] == [False] * (agent_steps - 1) + [True]
    reference = load_task("humanoid-stand", 0)
    reference.reset()
    expected = sum(reference.step(np.zeros(21)).reward for _ in range(8))
    assert sum(float(step.reward[0]) for step in steps) == pytest.approx(expected, abs=1e-5)


def test_resetting_one_member_leaves_the_others(humanoids):
    stored = humanoids.state()
    before = humanoids.obs
    first = humanoids.reset_member(1)
    np.testing.assert_array_equal(humanoids.obs[[0, 2]], before[[0, 2]])
    np.testing.assert_array_equal(humanoids.obs[1], first)
    assert not np.array_equal(first, before[1])
    disturbed = trajectory(humanoids, 5)
    humanoids.restore(stored)
    np.testing.assert_array_equal(disturbed[[0, 2]], trajectory(humanoids, 5)[[0, 2]])


def test_divergence_truncates_that_member_and_nobody_else(humanoids):
    humanoids.step(np.zeros((3, 21)))
    stored, before = humanoids.state(), humanoids.obs
    calm = humanoids.step(np.zeros((3, 21)))
    for _ in range(2):  # twice: a counter that stays up would hide the second one
        broken = {name: array.copy() for name, array in stored.items()}
        broken["simulator"][1, 1 + 28] = 1e12  # the first velocity, after time and qpos
        humanoids.restore(broken)
        step = humanoids.step(np.zeros((3, 21)))
        assert step.physics_error.tolist() == step.truncated.tolist() == [False, True, False]
        np.testing.assert_array_equal(step.final_obs[1], before[1])
        assert step.reward[1] == 0
        np.testing.assert_array_equal(step.obs[[0, 2]], calm.obs[[0, 2]])
        np.testing.assert_array_equal(step.reward[[0, 2]], calm.reward[[0, 2]])
        assert np.isfinite(step.obs).all()
        assert not humanoids.step(np.zeros((3, 21))).physics_error.any()


def test_dm_control_raises_where_we_truncate():
    reference = load_task("humanoid-stand", 0)
    reference.reset()
    reference.physics.data.qvel[0] = 1e12
    with pytest.raises(PhysicsError):
        reference.step(np.zeros(21))


def test_an_action_that_is_not_a_number_counts_as_divergence(humanoids):
    actions = np.zeros((3, 21))
    actions[2, 4] = np.nan
    step = humanoids.step(actions)
    assert step.physics_error.tolist() == [False, False, True]
    assert np.isfinite(step.obs).all()
    assert np.isfinite(step.final_obs).all()


def test_actions_are_clipped(humanoids):
    stored = humanoids.state()
    wild = humanoids.step(np.full((3, 21), 7.0))
    humanoids.restore(stored)
    np.testing.assert_array_equal(wild.obs, humanoids.step(np.ones((3, 21))).obs)


def test_restored_state_continues_bit_identically(monkeypatch):
    monkeypatch.setattr(dmc, "EPISODE_STEPS", 20)  # the continuation crosses an episode's end
    env = make_env(DOGS[1:3], [0, 1], action_noise=0.2)
    env.reset()
    trajectory(env, 4)
    stored = env.state()
    assert all(isinstance(array, np.ndarray) and array.size for array in stored.values())
    continued = trajectory(env, 12, seed=9)
    other = make_env(DOGS[1:3], [8, 9], action_noise=0.2, threads=1)
    assert other.restore(stored).all()
    np.testing.assert_array_equal(continued, trajectory(other, 12, seed=9))


def test_action_noise_is_seeded_per_member(humanoids):
    def run(noise, seeds=(0, 1, 2)):
        env = make_env(HUMANOIDS, seeds, action_noise=noise)
        env.reset()
        return trajectory(env, 3)

    noisy, calm = run(0.3), trajectory(humanoids, 3)
    np.testing.assert_array_equal(noisy[1], run(0.3, seeds=(5, 1, 6))[1])
    np.testing.assert_array_equal(calm, run(0.0))
    assert all(not np.array_equal(noisy[member], calm[member]) for member in range(3))


def test_what_does_not_fit_is_refused(humanoids):
    with pytest.raises(UserError, match="mix bodies"):
        make_env(["dog-run", "humanoid-run"], [0, 1])
    with pytest.raises(UserError, match="does not fit"):
        make_env("humanoid-run", [0]).restore(humanoids.state())


def test_no_renderer_is_loaded():
    code = (
        "import os, sys, numpy as np; from cvaml.envs import make_env\n"
        "env = make_env('dog-run', [0]); env.reset(); env.step(np.zeros((1, 38)))\n"
        "assert 'MUJOCO_GL' not in os.environ\n"
        "assert not {'glfw', 'OpenGL'} & set(sys.modules), 'a renderer was loaded'"
    )
    environment = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "MUJOCO_GL")}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=120)
