"""Speed is measured without a trace in the environment."""

import numpy as np

from cvaml.envs import make_env
from cvaml.envs.speed import Recording, bare_physics, replayed_physics, stepping


def test_measuring_leaves_the_environment_as_it_was():
    env = make_env("humanoid-walk", [0], threads=1, action_noise=0.1)
    env.reset()
    before = env.state()
    assert bare_physics(env, seconds=0.01) > 1
    assert stepping(env, seconds=0.01) > 1
    after = env.state()
    for name, array in before.items():
        np.testing.assert_array_equal(array, after[name])


def test_other_environments_are_measured_by_their_steps():
    env = make_env("Pendulum-v1", [0, 1], threads=0)
    env.reset()
    before = env.obs
    assert bare_physics(env, seconds=0.01) > 1
    np.testing.assert_array_equal(env.obs, before)


def test_recorded_stretches_are_repeated_from_where_they_began(monkeypatch):
    env = make_env("humanoid-walk", [0], threads=1)
    env.reset()
    began, actions = env.state(), np.full((3, 1, env.action_size), 0.5)
    for action in actions:
        env.step(action)
    reached, seen = env.state(), []
    step = env.physics

    def watched(action):
        step(action)
        seen.append(env.state()["simulator"])

    monkeypatch.setattr(env, "physics", watched)
    assert replayed_physics(env, [Recording(began, actions)] * 2) > 1
    assert len(seen) == 6
    np.testing.assert_array_equal(seen[2], reached["simulator"])
    np.testing.assert_array_equal(seen[5], reached["simulator"])
    np.testing.assert_array_equal(env.state()["simulator"], reached["simulator"])
