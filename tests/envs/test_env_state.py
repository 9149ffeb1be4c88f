"""Environment states on disk: whole, bit for bit, and refused where they do not fit."""

import numpy as np
import pytest

from cvaml.envs import make_env
from cvaml.runs.arrays import load_arrays, save_arrays
from cvaml.types import UserError


@pytest.mark.parametrize("task", ["humanoid-run", "Pendulum-v1"])
def test_a_state_survives_a_checkpoint_bit_for_bit(tmp_path, task):
    env = make_env(task, [0, 1], threads=0, action_noise=0.1)
    env.reset()
    actions = np.full((2, env.action_size), 0.3)
    for _ in range(3):
        env.step(actions)
    save_arrays(tmp_path / "state", env.state())
    expected = [env.step(actions) for _ in range(3)]
    other = make_env(task, [5, 6], threads=0, action_noise=0.1)
    other.reset()
    assert other.restore(load_arrays(tmp_path / "state")).all()
    for step in expected:
        np.testing.assert_array_equal(other.step(actions).obs, step.obs)


@pytest.mark.parametrize("task", ["humanoid-run", "Pendulum-v1"])
def test_a_state_that_does_not_fit_is_refused(task):
    env = make_env(task, [0, 1], threads=0)
    env.reset()
    state = env.state()
    with pytest.raises(UserError, match="does not fit"):
        make_env(task, [0], threads=0).restore(state)
    with pytest.raises(UserError, match="'obs' is float16"):
        env.restore({**state, "obs": state["obs"].astype(np.float16)})
    with pytest.raises(UserError, match="'action_noise'"):
        env.restore({name: array for name, array in state.items() if name != "action_noise"})
