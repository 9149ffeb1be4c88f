"""Environments with known answers; four of them are the four members of one population."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agent_cases import keys, tiny

from cvaml.agent import population
from cvaml.agent.networks import ValueHead
from cvaml.agent.objective import normalise, state_values
from cvaml.agent.state import Spec

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


def data(steps=600, seed=0):
    """Constant reward; reward = observation; reward at the second step; reward = action."""
    generator = np.random.default_rng(seed)
    replay = population.init_replay(Spec(1, 1), 4, 2 * steps)
    second = False
    for _ in range(steps):
        action = generator.uniform(-1, 1, (4, 1)).astype(np.float32)
        sign = generator.choice([-1.0, 1.0])
        observation = np.array([[0.0], [sign], [float(second)], [0.0]], np.float32)
        reward = [1.0, sign, float(second), float(action[3, 0])]
        successor = np.array([[0.0], [0.0], [1.0 if not second else 2.0], [0.0]], np.float32)
        terminated = np.array([True, True, second, True])
        replay = population.add(
            replay,
            observation,
            action,
            np.array(reward, np.float32),
            terminated,
            np.zeros(4, bool),
            successor,
        )
        second = not second
    return replay


@pytest.fixture(scope="module")
def state():
    replay, each = data(), keys(4)
    fast = {"learning_rate": [5.0] * 4}
    members = population.init_population(each, CONFIG, Spec(1, 1), fast)
    for _ in range(16):
        members, _ = population.update(members, replay, each, CONFIG, 50)
    return members


def value(state, member, observation):
    one = jax.tree.map(lambda x: x[member], state)
    x = normalise(jnp.array([observation]), one.scales.observation, CONFIG)
    z = one.networks.encoder(x)
    values = state_values(one.networks.critics, one.networks.actor, z, ValueHead.of(CONFIG.network))
    return float(values.mean())


def test_constant_reward(state):
    assert value(state, 0, 0.0) == pytest.approx(1, abs=0.1)


def test_reward_by_observation(state):
    assert value(state, 1, 1.0) == pytest.approx(1, abs=0.1)
    assert value(state, 1, -1.0) == pytest.approx(-1, abs=0.1)


def test_delayed_reward(state):
    assert value(state, 2, 1.0) == pytest.approx(1, abs=0.1)
    assert value(state, 2, 0.0) == pytest.approx(GAMMA, abs=0.1)


def test_reward_by_action(state):
    observation = np.zeros((4, 1), np.float32)
    planned, _ = population.act(state, observation, keys(4), CONFIG, explore=False)
    assert float(planned[3, 0]) > 0.9
    assert value(state, 3, 0.0) == pytest.approx(1, abs=0.15)
