"""Generators survive as arrays; action noise is Gaussian of the set size, then clipped."""

import numpy as np

from cvaml.envs.generators import (
    ActionNoise,
    LegacyGenerators,
    generator_words,
    set_generator_words,
)


def test_a_generator_continues_from_its_words():
    generator, other = np.random.default_rng(3), np.random.default_rng(4)
    generator.integers(7, dtype=np.uint32)  # leaves half a word behind, which counts as state
    set_generator_words(other, generator_words(generator))
    expected = generator.integers(7, size=5, dtype=np.uint32)
    np.testing.assert_array_equal(other.integers(7, size=5, dtype=np.uint32), expected)
    assert generator.standard_normal() == other.standard_normal()


def test_a_lent_generator_draws_what_the_members_own_would():
    generators, lent = LegacyGenerators([5, 6]), np.random.RandomState(0)
    own = np.random.RandomState(6)
    for _ in range(3):
        generators.lend(1, lent)
        assert lent.randn() == own.randn()  # draws pairs and keeps the second one
        generators.take_back(1, lent)
        generators.lend(0, lent)
        lent.rand(7)
        generators.take_back(0, lent)
    restored = LegacyGenerators([1, 2])
    restored.restore(generators.state())
    restored.lend(1, lent)
    assert lent.rand() == own.rand()


def test_action_noise_has_the_set_size_and_is_clipped():
    noise = ActionNoise([0, 1], 0.1)
    draws = np.stack([noise(np.zeros((2, 50))) for _ in range(400)])
    assert abs(draws.std() - 0.1) < 0.002
    assert abs(draws.mean()) < 0.002
    assert abs(np.corrcoef(draws[:, 0].ravel(), draws[:, 1].ravel())[0, 1]) < 0.03
    clipped = ActionNoise([0], 3.0)(np.zeros((1, 200)))
    assert (clipped.min(), clipped.max()) == (-1.0, 1.0)


def test_no_noise_leaves_actions_and_generators_alone():
    noise = ActionNoise([0], 0.0)
    before = noise.state()["action_noise"]
    np.testing.assert_array_equal(noise(np.array([[0.3, -0.2]])), [[0.3, -0.2]])
    np.testing.assert_array_equal(noise.state()["action_noise"], before)
