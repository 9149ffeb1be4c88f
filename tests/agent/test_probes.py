"""Environments with known answers; five of them are the five members of one population."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agent_cases import keys, tiny

from cvaml.agent import population
from cvaml.agent.networks import ValueHead
from cvaml.agent.state import Spec
from cvaml.agent.view import normalise, state_values

GAMMA = 0.9
CONFIG = tiny(
    discount=GAMMA,
    network__width=32,
    network__latent=16,
    network__bins=51,
    loss__pre_tanh=0.0,
    optim__polyak=0.05,
    batch_size=64,
    planner__samples=64,
    planner__elites=8,
    planner__iterations=4,
)


BEST = 0.3


def data(steps=600, seed=0):
    """Constant reward; reward = observation; reward at the second step; reward = action;
    reward best at an action inside the range.

    Observations of the last are noise: where the next latent state is known exactly, the
    likelihood's gradient grows with 1/σ² and, clipped together with the reward's, slows it down.
    """
    generator = np.random.default_rng(seed)
    replay = population.init_replay(Spec(1, 1), 5, 2 * steps)
    second = False
    for _ in range(steps):
        action = generator.uniform(-1, 1, (5, 1)).astype(np.float32)
        sign = generator.choice([-1.0, 1.0])
        before, after = generator.normal(size=2)
        observation = np.array([[0.0], [sign], [float(second)], [0.0], [before]], np.float32)
        reward = [1.0, sign, float(second), action[3, 0], 1 - (action[4, 0] - BEST) ** 2]
        reached = 1.0 if not second else 2.0
        successor = np.array([[0.0], [0.0], [reached], [0.0], [after]], np.float32)
        terminated = np.array([True, True, second, True, True])
        replay = population.add(
            replay,
            observation,
            action,
            np.array(reward, np.float32),
            terminated,
            np.zeros(5, bool),
            successor,
        )
        second = not second
    return replay


@pytest.fixture(scope="module")
def state():
    replay, each = data(), keys(5)
    fast = {"learning_rate": [5.0] * 5}
    members = population.init_population(each, CONFIG, Spec(1, 1), fast)
    for _ in range(16):
        members, _ = population.update(members, replay, each, CONFIG, 50)
    return members


def encoded(state, member, observation):
    """One member, and its encoding of an observation."""
    one = jax.tree.map(lambda x: x[member], state)
    x = normalise(jnp.array([observation]), one.scales.observation, CONFIG)
    return one.networks, one.networks.encoder(x)


def value(state, member, observation):
    networks, z = encoded(state, member, observation)
    values = state_values(networks.critics, networks.actor, z, ValueHead.of(CONFIG.network))
    return float(values.mean())


def planned(state, member):
    observation = np.zeros((5, 1), np.float32)
    action, _ = population.act(state, observation, keys(5), CONFIG, explore=False)
    return float(action[member, 0])


def test_constant_reward(state):
    assert value(state, 0, 0.0) == pytest.approx(1, abs=0.1)


def test_reward_by_observation(state):
    assert value(state, 1, 1.0) == pytest.approx(1, abs=0.1)
    assert value(state, 1, -1.0) == pytest.approx(-1, abs=0.1)


def test_delayed_reward(state):
    assert value(state, 2, 1.0) == pytest.approx(1, abs=0.1)
    assert value(state, 2, 0.0) == pytest.approx(GAMMA, abs=0.1)


def test_reward_by_action(state):
    assert planned(state, 3) > 0.9
    assert value(state, 3, 0.0) == pytest.approx(1, abs=0.15)


def test_best_action_inside_the_range(state):
    networks, z = encoded(state, 4, 0.0)
    assert float(jnp.tanh(networks.actor(z))[0]) == pytest.approx(BEST, abs=0.1)
    assert planned(state, 4) == pytest.approx(BEST, abs=0.1)
    assert value(state, 4, 0.0) == pytest.approx(1, abs=0.1)
