"""Evaluation: returns and optimism of episodes whose values are known."""

import dataclasses

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agent_cases import tiny
from gymnasium import spaces

from cvaml.agent import population
from cvaml.agent.evaluate import Evaluator, optimism
from cvaml.agent.state import Spec
from cvaml.agent.train_config import TrainConfig
from cvaml.agent.trainer import member_keys


class Three(gym.Env):
    """Pays 1 in each of its three steps."""

    observation_space = spaces.Box(-1, 1, (2,))
    action_space = spaces.Box(-1, 1, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(2, np.float32), 1.0, *self.ends(self.steps == 3), {}


class Ends(Three):
    def ends(self, now):
        return now, False


class IsCut(Three):
    def ends(self, now):
        return False, now


@pytest.mark.parametrize(("env", "behind"), [(Ends, 0.0), (IsCut, 1.0)])
def test_optimism_of_constant_values(tmp_path, env, behind):
    """By hand, discount 1/2 and V = 4: what follows is 1, 3/2, 7/4, and half the value behind."""
    config = tiny("td3", network__critic_head="scalar", discount=0.5)
    run = TrainConfig(out=tmp_path, task=(env,), members=2, agent=config, threads=0)
    keys = member_keys(run.seeds)
    state = population.init_population(keys.init, config, Spec(2, 1))
    fours = jnp.full_like(state.networks.critics.out.bias, 4.0)
    state = eqx.tree_at(lambda s: s.networks.critics.out.bias, state, fours)
    evaluator = Evaluator(run, 2)
    found = evaluator.run(state, keys.evaluate)
    cut_short = evaluator.run(state, keys.evaluate, steps=1)
    evaluator.close()
    np.testing.assert_array_equal(found.returns, np.full((2, 2), 3.0))
    following = np.array([1.75 + behind * 4 / 8, 1.5 + behind * 4 / 4, 1 + behind * 4 / 2])
    np.testing.assert_allclose(found.optimism, np.full((2, 2), 4 - following.mean()), rtol=1e-6)
    np.testing.assert_array_equal(cut_short.returns, np.ones((2, 2)))
    np.testing.assert_allclose(cut_short.optimism, np.full((2, 2), 4 - (1 + 4 / 2)), rtol=1e-6)


def test_steps_behind_an_episodes_end_do_not_count():
    rewards, values = np.array([[1.0, 1.0], [2.0, 100.0]]), np.array([[5.0, 5.0], [7.0, 100.0]])
    counts = np.array([[True, True], [True, False]])
    found = optimism(rewards, values, counts, np.array([8.0, 0.0]), 0.5)
    # The first: 5 - (1 + 2/2 + 8/4) and 7 - (2 + 8/2). The second ends after one step.
    np.testing.assert_allclose(found, [(1 + 1) / 2, 4])


def test_planned_actions_do_not_change_the_values(tmp_path):
    """V is the actor's, with and without planning."""
    found = []
    for planner in ("on", "off"):
        config = tiny(planner__enabled=planner, planner__precision="float32")
        run = TrainConfig(out=tmp_path, task=(IsCut,), agent=config, threads=0)
        keys = member_keys(run.seeds)
        state = population.init_population(keys.init, config, Spec(2, 1))
        evaluator = Evaluator(dataclasses.replace(run, agent=config), 1)
        found.append(evaluator.run(state, keys.evaluate).optimism)
        evaluator.close()
    np.testing.assert_allclose(*found, rtol=1e-5)
    # Fresh critics say 0, and the last state's value is 0 too.
    gamma = 0.99
    wanted = -(3 + 2 * gamma + gamma**2) / 3
    np.testing.assert_allclose(found[0], jax.device_get([[wanted]]), rtol=1e-3)
