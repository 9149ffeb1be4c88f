"""Minimisers of the value losses: by hand, by the linear system, by the loss's own gradient."""

import numpy as np
import pytest

from cvaml.calibration import (
    ValueProblem,
    draw_problem,
    value_excess,
    value_fixed_point,
    value_floor,
    value_gradient,
    value_minimisers,
)
from cvaml.losses import variance_weight
from cvaml.types import UserError

COIN = np.full((2, 2), 0.5)
HALF = np.array([0.5, 0.5])


def of_problem(problem, b=1, m=1):
    kernel = problem.steps(m)
    return ValueProblem(kernel, kernel, problem.targets(b), problem.weights)


def excess(problem, k, correction, target):
    return value_excess([problem], [value_minimisers(problem, k, correction)], target)[0]


@pytest.mark.parametrize(("k", "spread"), [(1, 0.0), (2, 0.0), (4, 0.0)])
def test_a_coin_flip_makes_both_states_equal(k, spread):
    """Targets 0 and 1: every sampled loss gives both states the mean, 0.5."""
    problem = ValueProblem(COIN, COIN, np.array([0.0, 1.0]), HALF)
    found = value_minimisers(problem, k, "none")
    np.testing.assert_allclose(found.values, [0.5, 0.5], atol=1e-15)
    assert found.free.shape == (2, 0)
    assert excess(problem, k, "none", "state") == pytest.approx(0.25)
    assert excess(problem, k, "none", "mean") == pytest.approx(spread, abs=1e-15)


def test_a_coin_flip_leaves_the_corrected_loss_a_free_direction():
    problem = ValueProblem(COIN, COIN, np.array([0.0, 1.0]), HALF)
    found = value_minimisers(problem, 2, "unbiased")
    np.testing.assert_allclose(np.abs(found.free[:, 0]), np.sqrt([0.5, 0.5]))
    assert found.values is not None
    assert found.values.mean() == pytest.approx(0.5)
    assert excess(problem, 2, "unbiased", "mean") == pytest.approx(0, abs=1e-15)
    assert excess(problem, 2, "unbiased", "state") == np.inf


def test_smoothing_by_hand():
    """k = 1, rows (1, 0) and (1/2, 1/2), targets 0 and 1.

    Siblings are averaged: state 0 is reached with 1/2 + 1/4, for the answers 0 and 1/2, so
    V(0) = (1/4 · 1/2)/(3/4) = 1/6; state 1 only from the second row, V(1) = 1/2.
    """
    kernel = np.array([[1.0, 0.0], [0.5, 0.5]])
    problem = ValueProblem(kernel, kernel, np.array([0.0, 1.0]), HALF)
    found = value_minimisers(problem, 1, "none")
    np.testing.assert_allclose(found.values, [1 / 6, 1 / 2])
    np.testing.assert_allclose(excess(problem, 1, "none", "state"), 0.75 / 36 + 0.25 / 4)
    np.testing.assert_allclose(excess(problem, 1, "none", "mean"), 0.5 / 36 + 0.5 / 36)
    np.testing.assert_allclose(value_minimisers(problem, 2, "unbiased").values, [0, 1], atol=1e-14)


def test_the_linear_system_of_the_paper(generator):
    for k, correction in ((1, "none"), (3, "none"), (3, "unbiased")):
        problem = of_problem(draw_problem(generator, "stochastic", "full", states=5), b=2, m=2)
        c = variance_weight(k, correction)
        weighted = problem.weights[:, None] * problem.model
        curvature = (1 - c) * problem.model.T @ weighted
        curvature += c * np.diag(problem.model.T @ problem.weights)
        right = weighted.T @ (problem.real @ problem.targets)
        found = value_minimisers(problem, k, correction).values
        np.testing.assert_allclose(curvature @ found, right, atol=1e-12)


@pytest.mark.parametrize("kind", ["full", "deficient", "subset"])
def test_the_losses_own_gradient_vanishes_there(kind, generator):
    for k, correction in ((1, "none"), (4, "none"), (4, "unbiased")):
        problem = of_problem(draw_problem(generator, "stochastic", kind))
        found = value_minimisers(problem, k, correction)
        gradient = value_gradient(problem, found.values, k, correction)
        np.testing.assert_allclose(gradient, 0, atol=1e-12)
        for direction in found.free.T:
            moved = value_gradient(problem, found.values + direction, k, correction)
            np.testing.assert_allclose(moved, 0, atol=1e-12)
        away = value_gradient(problem, problem.targets + 1, k, correction)
        assert np.abs(away).max() > 1e-3


def test_the_printed_correction_has_no_minimal_value():
    problem = ValueProblem(COIN, COIN, np.array([0.0, 1.0]), HALF)
    assert value_minimisers(problem, 4, "printed").values is None
    assert excess(problem, 4, "printed", "mean") == np.inf
    # nothing to reward in a deterministic kernel; at k = 2 it is the unbiased one
    swap = ValueProblem(np.eye(2)[::-1], np.eye(2)[::-1], np.array([0.0, 1.0]), HALF)
    np.testing.assert_allclose(value_minimisers(swap, 4, "printed").values, [0, 1], atol=1e-14)
    kernel = np.array([[1.0, 0.0], [0.5, 0.5]])
    full = ValueProblem(kernel, kernel, np.array([0.0, 1.0]), HALF)
    np.testing.assert_allclose(value_minimisers(full, 2, "printed").values, [0, 1], atol=1e-14)


def test_td_is_the_identity_kernel(generator):
    problem = draw_problem(generator, "stochastic", "subset")
    td = of_problem(problem, m=0)
    for k, correction in ((1, "none"), (4, "unbiased"), (4, "printed")):
        assert excess(td, k, correction, "state") == pytest.approx(0, abs=1e-14)


def test_states_that_a_model_joins_leave_a_floor():
    """Both start states are predicted to be state 0 while their answers are 0 and 1."""
    model = np.array([[1.0, 0.0], [1.0, 0.0]])
    problem = ValueProblem(model, np.eye(2), np.array([0.0, 1.0]), HALF)
    assert value_floor(problem, "mean") == pytest.approx(0.25)
    assert excess(problem, 1, "none", "mean") == pytest.approx(0, abs=1e-15)
    assert value_floor(problem, "state") == 0


def test_fixed_point(generator):
    problem = draw_problem(generator, "stochastic", "full", states=5)
    kernel, rewards, gamma = problem.kernel, problem.rewards, problem.discount
    truth = np.linalg.solve(np.eye(5) - gamma * kernel, rewards)
    arguments = (kernel, rewards, problem.weights, gamma)
    np.testing.assert_allclose(value_fixed_point(*arguments, 2, "unbiased"), truth, rtol=1e-7)
    smooth = kernel.T @ (problem.weights[:, None] * kernel)
    smooth /= (kernel.T @ problem.weights)[:, None]
    known = np.linalg.solve(np.eye(5) - gamma * smooth @ kernel, smooth @ rewards)
    found = value_fixed_point(*arguments, 1, "none")
    np.testing.assert_allclose(found, known, rtol=1e-10)
    assert np.abs(found - truth).max() > 1e-2
    with pytest.raises(UserError, match="no minimiser"):
        value_fixed_point(*arguments, 4, "printed")


def test_a_kernel_that_is_none_is_refused():
    with pytest.raises(UserError, match="model must sum to 1"):
        ValueProblem(2 * COIN, COIN, np.zeros(2), HALF)
