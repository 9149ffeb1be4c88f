"""Any environment through worker processes: spaces, episode ends, seeds, replay, failures."""

import os
import signal
import subprocess
import sys
import time
import warnings
from functools import partial
from pathlib import Path

import env_cases
import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from cvaml.envs import VectorEnv, make_env
from cvaml.envs.gymnasium import GymnasiumEnv
from cvaml.envs.member import load_task, suite_module
from cvaml.types import UserError


@pytest.fixture
def make():
    """`make_env` whose environments are closed after the test."""
    made = []

    def make(*arguments, **options):
        made.append(make_env(*arguments, **options))
        return made[-1]

    yield make
    for env in made:
        env.close()
        env.close()


def act(env, value=0.0):
    return env.step(np.full((env.members, env.action_size), value, np.float32))


def trajectory(env, steps, seed=0):
    generator = np.random.default_rng(seed)
    seen = []
    for _ in range(steps):
        action = generator.uniform(-1, 1, env.action_size).astype(np.float32)
        step = env.step(np.tile(action, (env.members, 1)))
        seen.append(np.concatenate([step.obs, step.reward[:, None], step.final_obs], axis=1))
    return np.stack(seen, axis=1)


def test_actions_are_rescaled_from_one_to_the_bounds(make):
    env = make(env_cases.Counter, [0], threads=0)
    env.reset()
    received = [float(act(env, value).obs[0, 2]) for value in (-1.0, 0.0, 0.5, 3.0)]
    assert received == [2.0, 4.0, 5.0, 6.0]


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("terminates", [False, True])
def test_an_episode_ends_and_restarts_in_the_same_step(make, terminates, threads):
    factory = partial(env_cases.Counter, length=3, terminates=terminates)
    env = make(factory, [0, 1], threads=threads)
    first = env.reset()
    assert first[0, 1] != first[1, 1]  # seeds differ
    env.reset_member(1)
    steps = [act(env) for _ in range(4)]
    assert [step.terminated.tolist() for step in steps[:3]] == [[False] * 2] * 2 + [
        [terminates] * 2
    ]
    assert [step.truncated.any() for step in steps[:3]] == [False, False, not terminates]
    assert steps[2].final_obs[:, 0].tolist() == [3.0, 3.0]
    assert steps[2].obs[:, 0].tolist() == [0.0, 0.0]
    assert steps[2].obs[0, 1] != steps[2].final_obs[0, 1]  # a new seed for the new episode
    assert steps[3].obs[:, 0].tolist() == [1.0, 1.0]
    np.testing.assert_array_equal(steps[1].obs, steps[1].final_obs)


def test_action_repeat_sums_rewards_and_stops_at_the_end(make):
    env = make(env_cases.Counter, [0], threads=0, action_repeat=3)
    env.reset()
    assert act(env).reward[0] == 1 + 2 + 3
    last = act(env)
    assert (last.reward[0], bool(last.truncated[0])) == (4 + 5, True)


def test_dictionaries_are_flattened(make):
    env = make(env_cases.Dictionary, [0], threads=1)
    assert (env.observation_size, env.action_size) == (9, 4)
    env.reset()
    step = act(env, 0.5)
    np.testing.assert_allclose(step.obs[0], [0, 1, 2, 3, 4, 5, 0.25, 0.5, 0.1])
    assert step.reward[0] == 4.0


def test_matches_gymnasium_itself(make):
    env = make("Pendulum-v1", [3], threads=1)
    assert isinstance(env, VectorEnv)
    assert env.action_repeat == 1
    first = env.reset()
    seed = int(env.state()["episode_seed"][0])
    reference = gym.make("Pendulum-v1")
    np.testing.assert_array_equal(first[0], reference.reset(seed=seed)[0])
    for value in (0.3, -1.0, 0.7):
        obs, reward, *_ = reference.step(np.array([2 * value], np.float32))
        step = act(env, value)
        np.testing.assert_array_equal(step.obs[0], obs)
        assert step.reward[0] == np.float32(reward)


def test_matches_dm_control_itself(make):
    env = make("cartpole-swingup", [3], threads=1)
    assert env.action_repeat == 2
    first = env.reset()
    reference = load_task("cartpole-swingup", int(env.state()["episode_seed"][0]))
    expected = reference.reset().observation["observations"]
    np.testing.assert_array_equal(first[0], expected.astype(np.float32))
    for count in range(500):
        value = np.float32(np.sin(count))
        twice = [reference.step([value]) for _ in range(2)]
        step = act(env, value)
        expected = twice[-1].observation["observations"].astype(np.float32)
        np.testing.assert_array_equal(step.final_obs[0], expected)
        assert step.reward[0] == np.float32(sum(part.reward for part in twice))
        assert bool(step.truncated[0]) == twice[-1].last() == (count == 499)


def test_same_seed_same_trajectory_in_any_company(make):
    def run(seeds, threads, member):
        env = make("Pendulum-v1", seeds, threads=threads)
        env.reset()
        return trajectory(env, 20)[member]

    alone = run([4], 0, 0)
    np.testing.assert_array_equal(alone, run([1, 2, 4, 3], 2, 2))
    np.testing.assert_array_equal(alone, run([4, 5, 6], 3, 0))
    assert not np.array_equal(alone, run([5], 0, 0))


@pytest.mark.parametrize("task", ["Pendulum-v1", "reacher-hard", env_cases.Counter])
def test_a_restored_episode_is_replayed_bit_identically(make, task):
    env = make(task, [0, 1, 2], threads=2, action_noise=0.1)
    env.reset()
    trajectory(env, 3)
    env.reset_member(1)
    stored = env.state()
    assert all(array.size for array in stored.values())
    continued = trajectory(env, 8, seed=1)
    other = make(task, [7, 8, 9], threads=1, action_noise=0.1)
    assert other.restore(stored).all()
    np.testing.assert_array_equal(other.obs, stored["obs"])
    np.testing.assert_array_equal(continued, trajectory(other, 8, seed=1))


@pytest.mark.slow
@pytest.mark.parametrize("task", ["-".join(names) for names in suite_module().ALL_TASKS])
def test_every_task_of_the_suite_steps_and_replays(task):
    env = GymnasiumEnv([task], [0], 0, 0.0, None)
    env.reset()
    trajectory(env, 10)
    stored = env.state()
    continued = trajectory(env, 10, seed=1)
    other = GymnasiumEnv([task], [7], 0, 0.0, None)
    assert other.restore(stored).all()
    np.testing.assert_array_equal(continued, trajectory(other, 10, seed=1))
    assert np.isfinite(continued).all()


def test_an_episode_that_cannot_be_replayed_starts_anew_with_a_warning(make):
    env = make([env_cases.Unseeded, env_cases.Counter], [0, 1], threads=0)
    env.reset()
    trajectory(env, 2)
    stored = env.state()
    other = make([env_cases.Unseeded, env_cases.Counter], [0, 1], threads=0)
    with pytest.warns(UserWarning, match=r"1 of 2 members .* new episode: 0 \(Unseeded\)"):
        continued = other.restore(stored)
    assert continued.tolist() == [False, True]
    assert other.obs[:, 0].tolist() == [0.0, 2.0]
    assert act(other).obs[:, 0].tolist() == [1.0, 3.0]


def test_a_number_that_is_none_counts_as_divergence(make):
    env = make(env_cases.Blows, [0], threads=0)
    env.reset()
    steps = [act(env) for _ in range(3)]
    assert [bool(step.physics_error[0]) for step in steps] == [False, False, True]
    assert bool(steps[2].truncated[0])
    np.testing.assert_array_equal(steps[2].final_obs, steps[1].obs)
    assert np.isfinite(steps[2].obs).all()


def test_dm_controls_physics_error_counts_as_divergence(make):
    env = make("cartpole-swingup", [0, 1], threads=0)
    before = env.reset()
    step = env.step(np.array([[0.1], [np.nan]]))
    assert step.physics_error.tolist() == step.truncated.tolist() == [False, True]
    np.testing.assert_array_equal(step.final_obs[1], before[1])
    assert np.isfinite(step.obs).all()


def test_action_noise_is_seen_by_the_environment(make):
    env = make(env_cases.Counter, [0, 1], threads=0, action_noise=0.1)
    env.reset()
    received = act(env).obs[:, 2]
    assert (received != 4.0).all()
    assert received[0] != received[1]


@pytest.mark.parametrize(
    ("action", "observation", "message"),
    [
        (spaces.Discrete(3), None, r"Discrete\(3\) is not continuous"),
        (spaces.Box(0, 5, (2,), np.int64), None, "not continuous"),
        (spaces.Box(-np.inf, 1.0, (2,)), None, "unbounded"),
        (None, spaces.Discrete(4), r"Discrete\(4\); allowed are Box"),
        (None, spaces.Dict({"a": spaces.Text(3)}), "Text"),
    ],
)
@pytest.mark.parametrize("threads", [0, 1])
def test_spaces_that_do_not_fit_are_refused(action, observation, message, threads):
    with pytest.raises(UserError, match=message):
        make_env(partial(env_cases.space_env, action, observation), [0], threads=threads)


def test_what_is_unknown_is_refused_with_the_nearest_name():
    with pytest.raises(UserError, match="'cartpole-swingup'"):
        make_env("cartpole-swingpu", [0])
    with pytest.raises(UserError, match="'humanoid-walk'"):
        make_env("humanoid_walk", [0])
    with pytest.raises(UserError, match="'Pendulum-v1'"):
        make_env("Pendulum-v11", [0])
    with pytest.raises(UserError, match=r"returned int; allowed is a gymnasium.Env"):
        make_env(lambda: 3, [0], threads=0)
    with pytest.raises(UserError, match="equal observation and action sizes"):
        make_env(["pendulum-swingup", "cartpole-swingup"], [0, 1], threads=0)


@pytest.mark.parametrize(
    ("seeds", "options", "message"),
    [
        ([], {}, "seeds is empty"),
        ([-1], {}, "must lie in"),
        ([0], {"threads": -1}, "threads -1"),
        ([0], {"action_noise": -0.1}, "action_noise -0.1"),
        ([0], {"action_noise": float("nan")}, "action_noise nan"),
        ([0], {"action_repeat": 0}, "action_repeat 0"),
    ],
)
def test_settings_are_checked(seeds, options, message):
    with pytest.raises(UserError, match=message):
        make_env("Pendulum-v1", seeds, **options)
    with pytest.raises(UserError, match="2 tasks for 1 seeds"):
        make_env(["Pendulum-v1"] * 2, [0])


def test_an_exception_and_a_death_in_a_worker_name_their_cause(make):
    env = make(env_cases.Fails, [0, 1], threads=2)
    env.reset()
    with pytest.raises(RuntimeError, match="ZeroDivisionError: a bug of"):
        act(env)
    env.reset()  # the answers are in step again
    env = make(partial(env_cases.Fails, dies=True), [0], threads=1)
    env.reset()
    with pytest.raises(RuntimeError, match="exit code 3"):
        act(env)


def test_workers_are_processes_without_jax_or_renderer(make):
    env = make(env_cases.Modules, [0, 1, 2], threads=2)
    env.reset()
    obs = act(env).obs
    assert (obs[:, 0] == 0).all()
    assert len(set(obs[:, 1])) == 2
    assert os.getpid() not in obs[:, 1]


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_workers_leave_signals_to_the_main_process(make, ending):
    env = make(env_cases.Modules, [0, 1], threads=2)
    env.reset()
    for worker in env._workers:
        worker._process.send_signal(ending)
    assert act(env).obs.shape == (2, 3)


def test_lambdas_and_closures_reach_a_worker(make):
    length = 2
    env = make(lambda: env_cases.Counter(length), [0], threads=1)
    env.reset()
    assert [bool(act(env).truncated[0]) for _ in range(2)] == [False, True]


def test_what_this_process_registered_reaches_a_worker(make, monkeypatch):
    monkeypatch.setattr(gym.envs.registration, "registry", dict(gym.registry))
    gym.register("Five-v0", entry_point=lambda: env_cases.Counter(5), max_episode_steps=2)
    env = make("Five-v0", [0], threads=1)
    env.reset()
    assert [bool(act(env).truncated[0]) for _ in range(2)] == [False, True]


def test_workers_end_when_the_main_process_is_killed():
    code = (
        "import env_cases; from cvaml.envs import make_env; import time\n"
        "env = make_env(env_cases.Modules, [0, 1], threads=2); env.reset()\n"
        "print([worker._process.pid for worker in env._workers], flush=True); time.sleep(60)"
    )
    path = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    command = [sys.executable, "-c", code]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, **path}
    ) as process:
        pids = [int(pid) for pid in process.stdout.readline().strip("[]\n").split(",")]
        process.send_signal(signal.SIGKILL)
    for _ in range(100):
        if not any(alive(pid) for pid in pids):
            return
        time.sleep(0.1)
    pytest.fail("a worker outlived the main process")


def alive(pid):
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_nothing_warns_when_made_and_closed():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_env("Pendulum-v1", [0], threads=1).close()
