"""Propositions 1 and 3.1, the lemmas and the auxiliary model."""

import numpy as np
import pytest

from cvaml.calibration import (
    Check,
    Problem,
    Start,
    auxiliary_checks,
    compact_checks,
    compact_numbers,
    compact_problems,
    deterministic_model,
    draw_problem,
    expectation_gap,
    expectation_model,
    finite_checks,
    lemma_numbers,
    operator_gap,
    shrink_slopes,
)
from cvaml.types import UserError


def test_every_check_of_a_few_problems_holds(generator):
    problems = [draw_problem(generator, "stochastic", "full") for _ in range(5)]
    checks = [*finite_checks(problems, generator), *auxiliary_checks(generator, draws=5)]
    assert {check.statement for check in checks} == {
        "Proposition 1",
        "Lemma 3",
        "Lemma 4",
        "Lemma 5",
        "Lemma before Prop. 2.3",
        "Equation 7",
    }
    assert [check for check in checks if not check.holds] == []


def test_a_check_can_fail():
    assert Check("x", "y", 1.0, "<", 2.0).holds
    assert not Check("x", "y", 2.0, "<", 2.0).holds
    assert not Check("x", "y", 0.0, ">", 0.0).holds


def test_proposition_1_by_hand():
    """V = (0, 1, 2), P(0) = (1/2, 0, 1/2): the point mass on state 1 has the same Bellman value."""
    kernel = np.array([[0.5, 0, 0.5], [0, 1, 0], [0.25, 0.5, 0.25]])
    problem = Problem(kernel, np.zeros(3), np.array([0.0, 1.0, 2.0]), np.full(3, 1 / 3), 0.5)
    gap = operator_gap(problem)
    assert gap.zero_loss < 1e-15
    assert gap.any_loss < 1e-15


def test_lemmas_by_hand(generator):
    """f = (0, 1, 4), p = (1/2, 1/4, 1/4), mean 1.25: p* on 1 and 4 has variance 0.6875."""
    f = np.array([0.0, 1.0, 4.0])
    start = Start(np.array([0.5, 0.25, 0.25]), f, f)
    for k, met in ((1, True), (8, True), (16, False)):
        numbers = lemma_numbers(start, k, generator)
        assert numbers.condition == met  # 0.0625 < 0.6875 / k
        assert numbers.gain == pytest.approx(0.6875 / k - 0.0625)
        assert numbers.margin >= 0
        assert numbers.excess > 0  # sufficient, not necessary: biased at k = 16 too
    assert lemma_numbers(start, 1, generator).excess == pytest.approx(0.0625)


def test_the_lemmas_assumption_is_checked(generator):
    f = np.array([0.0, 1.0, 2.0])
    with pytest.raises(UserError, match="assume"):
        lemma_numbers(Start(np.array([0.5, 0.0, 0.5]), f, f), 1, generator)


def test_slopes_by_hand():
    """A fair coin between 0 and 2 has variance 1."""
    slopes = shrink_slopes(np.array([0.5, 0.5]), np.array([0.0, 2.0]))
    np.testing.assert_allclose(slopes, (-1, -2, 1), atol=1e-15)
    constant = shrink_slopes(np.array([0.5, 0.5]), np.array([3.0, 3.0]))
    np.testing.assert_allclose(constant, (0, 0, 0), atol=1e-15)


@pytest.fixture(scope="module")
def numbers():
    chosen = compact_problems()[::5]  # every kernel once, both encodings, both values
    return {problem.name: compact_numbers(problem, states=9) for problem in chosen}


def test_proposition_3_1(numbers):
    assert len({name.split(";")[0] for name in numbers}) == 4
    for found in numbers.values():
        assert found.gap < 1e-6
        assert np.abs(found.loss_gap).max() < 1e-10
        assert found.loss_floor.shape == (2,)
        assert found.loss_floor.min() > 1e-4
        assert found.two_step_gap > 1e-3
    assert [check for check in compact_checks(list(numbers.values())) if not check.holds] == []


def test_value_functions_are_not_monotone_and_encodings_not_the_identity():
    grid = np.linspace(0, 1, 101)
    for problem in compact_problems():
        latent = problem.encode(grid)
        assert np.abs(latent - grid).max() > 0.1
        slopes = np.diff(problem.value(latent))
        assert slopes.min() < 0 < slopes.max()


def test_a_deterministic_model_by_hand():
    """Two points 0 and 0.4 with 3/4 and 1/4 at x = 0: the first z with V(z) = E V."""
    problem = next(
        p for p in compact_problems() if "two points; φ = x + x³; V = (z - 0.8)²" in p.name
    )
    expected = 0.75 * 0.64 + 0.25 * (0.464 - 0.8) ** 2
    assert problem.expected_value(0.0, 7) == pytest.approx(expected)
    assert deterministic_model(problem, 0.0) == pytest.approx(0.8 - np.sqrt(expected))


def test_quadratures_are_distributions():
    for problem in compact_problems():
        for x in (0.0, 0.3, 1.0):
            points, probabilities = problem.kernel(x, 50)
            assert probabilities.sum() == pytest.approx(1, abs=1e-12)
            assert points.min() >= 0
            assert points.max() <= 1


def test_the_auxiliary_model_predicts_the_mean():
    latents = np.array([[0.0, 2.0], [4.0, -2.0]])
    probabilities = np.array([0.25, 0.75])
    np.testing.assert_allclose(expectation_model(latents, probabilities), [3, -1])
    assert expectation_gap(latents, probabilities, lambda z: z @ np.array([2.0, 3.0]) - 1) == 0
    # Var = 0.25 · 9 + 0.75 · 1 = 3
    assert expectation_gap(latents, probabilities, lambda z: z[..., 0] ** 2) == pytest.approx(3)
    with pytest.raises(UserError, match="sum to 1"):
        expectation_model(latents, np.array([0.5, 0.6]))
