"""Minimisers of the model losses: by hand, by formula, by brute force, by a general solver."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

from cvaml.calibration import (
    ALL,
    DETERMINISTIC,
    FLOOR,
    Start,
    brute_force_regret,
    class_floor,
    closed_form_regret,
    draw_problem,
    model_candidates,
    model_regret,
)
from cvaml.calibration.evaluate import Rows, target_losses
from cvaml.losses import expected_vaml_loss, itervaml_loss
from cvaml.types import UserError

SETTINGS = [("none", 1), ("none", 2), ("none", 8), ("unbiased", 3), ("printed", 2), ("printed", 8)]


def start_of(p_true, values, targets=None):
    values = np.asarray(values, float)
    targets = values if targets is None else np.asarray(targets, float)
    return Start(np.asarray(p_true, float), values, targets)


@pytest.fixture(scope="module")
def starts():
    generator = np.random.default_rng(3)
    problems = [draw_problem(generator, "stochastic", "full") for _ in range(12)]
    return [Start(p.kernel[0], p.values, p.values) for p in problems]


# V = (0, 1, 3), P = (0.2, 0.2, 0.6): the mean 2 lies between 1 and 3, in their middle; with
# P = (0.2, 0.3, 0.5) it is 1.8, its neighbours' middle 2.
@pytest.mark.parametrize(
    ("correction", "k", "expected"),
    [
        ("none", 1, 0.64),  # the nearer state, V = 1
        ("none", 2, 0.04),  # mean 1.8 - 0.2
        ("none", 3, 0.01),  # mean 1.8 - 0.1
        ("unbiased", 2, 0.0),
        ("printed", 2, 0.0),
        ("printed", 4, 0.01),  # 1/3 of the way from 1.8 to the middle 1.5 of the extremes
    ],
)
def test_regret_by_hand(correction, k, expected):
    start = start_of([0.2, 0.3, 0.5], [0, 1, 3])
    found = model_regret([start], k, correction, ALL)
    np.testing.assert_allclose(found.excess, [expected], atol=1e-15)
    np.testing.assert_allclose(found.floor, [0])
    np.testing.assert_allclose(closed_form_regret(start, k, correction), expected, atol=1e-15)


def test_ties_take_the_worst_minimiser():
    """Mean 2 between 1 and 3: for k = 1 everything from one to the other is a minimiser."""
    start = start_of([0.2, 0.2, 0.6], [0, 1, 3])
    np.testing.assert_allclose(model_regret([start], 1, "none", ALL).excess, [1.0])
    np.testing.assert_allclose(model_regret([start], 2, "none", ALL).excess, [0.0], atol=1e-15)
    equal = start_of([0.5, 0.5], [1, 1])
    np.testing.assert_allclose(model_regret([equal], 4, "printed", ALL).excess, [0.0])


def test_deterministic_models_by_enumeration():
    start = start_of([0.2, 0.3, 0.5], [0, 1, 3])
    for correction, k in SETTINGS:
        found = model_regret([start], k, correction, DETERMINISTIC)
        np.testing.assert_allclose(found.excess, [0], atol=1e-15)
        np.testing.assert_allclose(found.floor, [0.64])


def test_noise_floor_by_hand():
    """Values 0 and 1, the point mass on 1, ε = 0.1: means reach from 0.05 to 0.95."""
    start = start_of([0, 1], [0, 1])
    assert class_floor(start, FLOOR) == pytest.approx(0.0025)
    assert class_floor(start, ALL) == 0
    np.testing.assert_allclose(model_regret([start], 2, "unbiased", FLOOR).excess, [0], atol=1e-15)
    middle = start_of([0, 1, 0], [0, 1, 2.5])
    plain = model_regret([middle], 1, "none", FLOOR)
    # mixing uniform noise of mean 7/6 into state 1 gives a mean of 0.9 + 0.7/6
    np.testing.assert_allclose(plain.excess, [(0.7 / 6 - 0.1) ** 2], atol=1e-15)
    fixed = model_regret([middle], 2, "unbiased", FLOOR)
    np.testing.assert_allclose(fixed.excess, [0], atol=1e-15)


@pytest.mark.parametrize(("correction", "k"), SETTINGS)
def test_formula_and_brute_force_agree(starts, correction, k):
    exact = model_regret(starts, k, correction, ALL)
    formula = [closed_form_regret(start, k, correction) for start in starts]
    brute = brute_force_regret(starts, k, correction)
    np.testing.assert_allclose(exact.excess, formula, atol=1e-12)
    np.testing.assert_allclose(exact.excess, brute.excess, atol=1e-6)
    np.testing.assert_allclose(exact.surrogate, brute.surrogate, rtol=1e-12)


@pytest.mark.parametrize("mean", [-4.0, 4.0, 0.3])
def test_targets_outside_the_range_of_values(mean):
    """With b >= 1 no model may reach the target; formula and minimiser subtract the same floor."""
    start = start_of([0.5, 0.25, 0.25], [0, 1, 3], np.full(3, mean))
    for correction, k in SETTINGS:
        exact = model_regret([start], k, correction, ALL).excess[0]
        assert exact == pytest.approx(closed_form_regret(start, k, correction), abs=1e-12)


@pytest.mark.parametrize(("correction", "k"), [("none", 3), ("unbiased", 3), ("printed", 4)])
def test_a_general_solver_over_the_whole_simplex_finds_no_less(starts, correction, k, x64):
    """The expected loss is convex in the model, so SLSQP's local minimum is the global one."""
    for start in starts[:4]:
        n = len(start.values)
        others = [jnp.asarray(array) for array in start]

        def loss(p, others=others):
            return expected_vaml_loss(p, others[0], others[1], k, correction, others[2])

        both = jax.jit(jax.value_and_grad(loss))
        found = optimize.minimize(
            lambda p, both=both: [np.asarray(part) for part in both(jnp.asarray(p))],
            np.full(n, 1 / n),
            jac=True,
            bounds=[(0, 1)] * n,
            constraints={"type": "eq", "fun": lambda p: p.sum() - 1},
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 500},
        )
        exact = model_regret([start], k, correction, ALL)
        assert found.fun == pytest.approx(exact.surrogate[0], abs=1e-6)
        assert (found.x @ start.values - start.mean) ** 2 == pytest.approx(
            exact.excess[0], abs=1e-3
        )


def test_regret_falls_as_one_over_k_minus_one_squared(starts):
    """Once unclipped, and towards zero."""
    ks = np.array([64, 128, 256])
    regrets = np.array([model_regret(starts, int(k), "none", ALL).excess for k in ks])
    scaled = regrets * (ks[:, None] - 1) ** 2
    np.testing.assert_allclose(scaled, np.broadcast_to(scaled[:1], scaled.shape), rtol=1e-9)


def test_regret_does_not_depend_on_the_environments_variance():
    narrow = start_of([0, 0.5, 0.5, 0, 0], [-9, 0, 1.2, 2, 9])
    wide = start_of([0.35, 0, 0, 0.3, 0.35], [-9, 0, 1.2, 2, 9])
    assert narrow.mean == pytest.approx(wide.mean)
    both = model_regret([narrow, wide], 3, "none", ALL).excess
    assert both[0] == pytest.approx(both[1])
    assert both[0] == pytest.approx(0)  # the mean is the middle
    assert model_regret([wide], 1, "none", ALL).excess[0] == pytest.approx(0.36)


def test_candidates_are_members_of_their_class(starts):
    for models in (ALL, FLOOR, DETERMINISTIC):
        for correction, k in SETTINGS:
            found = model_candidates(starts[0], k, correction, models)
            np.testing.assert_allclose(found.sum(axis=1), 1)
            assert found.min() >= models.noise_floor / len(starts[0].values) - 1e-15


def test_the_target_loss_is_itervaml(starts, x64):
    start = starts[0]
    p_model = np.full(len(start.values), 1 / len(start.values))
    found = target_losses(Rows(*(array[None] for array in (p_model, *start))))
    arrays = [jnp.asarray(array) for array in (p_model, start.p_true, start.values)]
    np.testing.assert_allclose(found, [itervaml_loss(*arrays)], rtol=1e-14)


def test_more_than_ten_states_and_many_rows(generator):
    problem = draw_problem(generator, "stochastic", "full", states=23)
    starts = [Start(row, problem.values, problem.values) for row in problem.kernel]
    found = model_regret(starts, 2, "unbiased", ALL)  # 23 × 253 candidates: several blocks
    np.testing.assert_allclose(found.excess, 0, atol=1e-14)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("p_true", [0.5, 0.6]), ("p_true", [1.5, -0.5]), ("values", [0.0, np.nan])],
)
def test_bad_values_are_named(name, wrong):
    good = {"p_true": np.array([0.5, 0.5]), "values": np.zeros(2), "targets": np.zeros(2)}
    start = Start(**{**good, name: np.array(wrong)})
    for function in (model_regret, brute_force_regret):
        arguments = [ALL] if function is model_regret else []
        with pytest.raises(UserError, match=name):
            function([start], 2, "none", *arguments)
    with pytest.raises(UserError, match=name):
        closed_form_regret(start, 2, "none")


def test_arrays_of_different_length_are_refused():
    with pytest.raises(UserError, match="one length"):
        model_regret([Start(np.array([1.0]), np.zeros(2), np.zeros(2))], 2, "none", ALL)


def test_one_sample_cannot_be_corrected():
    with pytest.raises(ValueError, match="one sample has none"):
        model_regret([start_of([0.5, 0.5], [0, 1])], 1, "unbiased", ALL)
