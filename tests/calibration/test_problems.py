"""Random problems are what their kind says."""

import jax.numpy as jnp
import numpy as np
import pytest

from cvaml.calibration import KINDS, draw_problem
from cvaml.losses import value_targets
from cvaml.types import UserError

CASES = [(environment, kind) for environment, kinds in KINDS.items() for kind in kinds]


@pytest.mark.parametrize(("environment", "kind"), CASES)
def test_kinds(environment, kind, generator):
    for _ in range(20):
        problem = draw_problem(generator, environment, kind)
        n = problem.states
        assert 3 <= n <= 10
        assert np.all(np.isin(problem.kernel, (0, 1))) == (environment == "deterministic")
        rank = np.linalg.matrix_rank(problem.kernel, tol=1e-10)
        if kind in ("full", "subset"):
            assert rank == n
        if kind == "deficient":
            assert rank < n
        assert (np.count_nonzero(problem.weights) < n) == (kind == "subset")
        if kind == "equivalent":
            y = problem.targets(1)
            distance = np.abs(y[None, :] - (problem.kernel @ y)[:, None])
            np.testing.assert_allclose(distance.min(axis=1), 0, atol=1e-12)


def test_the_same_seed_draws_the_same_problem():
    first, second, other = (
        draw_problem(np.random.default_rng(seed), "stochastic", "full") for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first.kernel, second.kernel)
    assert first.kernel.shape != other.kernel.shape or np.any(first.kernel != other.kernel)


def test_exact_targets_are_the_sampled_ones_along_a_deterministic_trajectory(generator, x64):
    problem = draw_problem(generator, "deterministic", "deficient", states=6)
    path = [2]
    for _ in range(4):
        path.append(int(problem.kernel[path[-1]].argmax()))
    for b in range(4):
        rewards = jnp.asarray(problem.rewards[path[:-1]])
        discounts = jnp.full(4, problem.discount)
        sampled = value_targets(rewards, discounts, jnp.asarray(problem.values[path]), b)
        np.testing.assert_allclose(sampled[0], problem.targets(b)[2], rtol=1e-12)


def test_no_steps_is_the_identity(generator):
    problem = draw_problem(generator, "stochastic", "full", states=4)
    np.testing.assert_array_equal(problem.steps(0), np.eye(4))
    np.testing.assert_allclose(problem.steps(2), problem.kernel @ problem.kernel)


def test_an_unknown_kind_is_refused(generator):
    import jaxtyping

    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        with pytest.raises(UserError, match="'equivalent' for a deterministic one"):
            draw_problem(generator, "deterministic", "equivalent")
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
