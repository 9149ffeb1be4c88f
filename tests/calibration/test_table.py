"""Table 1: every verdict of the paper, and the conditions under which it holds."""

import numpy as np
import pytest

from cvaml.calibration import (
    ALL,
    DETERMINISTIC,
    FLOOR,
    KINDS,
    Cell,
    calibrated,
    cell_regret,
    draw_problem,
    horizon_cells,
    paper_says_calibrated,
    rollout_regret,
    table_cells,
    update_norms,
)
from cvaml.types import UserError


@pytest.fixture(scope="module")
def problems():
    generator = np.random.default_rng(5)
    return {
        (environment, kind): [draw_problem(generator, environment, kind) for _ in range(6)]
        for environment, kinds in KINDS.items()
        for kind in kinds
    }


def verdict(problems, environment, models, update, target, m, b, correction, k, kind="full"):
    cell = Cell(environment, models, update, target, m, b, correction, k)
    return calibrated(cell_regret(cell, problems[environment, kind]).excess)


def test_deterministic_models_are_calibrated(problems):
    for environment in KINDS:
        for correction, k in (("none", 1), ("unbiased", 4), ("printed", 4)):
            question = (problems, environment, DETERMINISTIC)
            for b in (0, 1):
                assert verdict(*question, "model", "mean", 1, b, correction, k)
            assert verdict(*question, "value", "mean", 1, 1, correction, k)


def test_a_deterministic_model_misplaces_values_unless_an_equivalent_state_exists(problems):
    question = ("stochastic", DETERMINISTIC, "value", "state", 1, 1, "none", 1)
    assert not verdict(problems, *question)
    assert verdict(problems, *question, kind="equivalent")
    assert verdict(problems, "deterministic", *question[1:])


def test_stochastic_models_need_the_correction(problems):
    for b in (0, 1):
        for models in (ALL, FLOOR):
            for k in (1, 4):
                assert not verdict(problems, "stochastic", models, "model", "mean", 1, b, "none", k)
            assert verdict(problems, "stochastic", models, "model", "mean", 1, b, "unbiased", 4)
            assert not verdict(problems, "stochastic", models, "model", "mean", 1, b, "printed", 4)


def test_a_deterministic_environment_needs_a_class_without_point_masses(problems):
    question = ("model", "mean", 1, 0, "none", 1)
    assert verdict(problems, "deterministic", ALL, *question)
    assert not verdict(problems, "deterministic", FLOOR, *question)


def test_muzero_values(problems):
    """The correction repairs the mean always, each state only for a kernel of full rank."""
    for kind in ("full", "deficient", "subset"):
        for target in ("mean", "state"):
            question = ("stochastic", ALL, "value", target, 1, 1)
            assert not verdict(problems, *question, "none", 1, kind=kind)
            repaired = verdict(problems, *question, "unbiased", 4, kind=kind)
            assert repaired == (target == "mean" or kind == "full")


def test_td_is_calibrated(problems):
    for (environment, kind), drawn in problems.items():
        cell = Cell(environment, ALL, "value", "state", 0, 1, "none", 1)
        assert calibrated(cell_regret(cell, drawn).excess), kind


def test_the_threshold_and_infinity():
    assert calibrated(np.array([0.0, 9e-11]))
    assert not calibrated(np.array([0.0, 2e-10]))
    assert not calibrated(np.array([0.0, np.inf]))


def test_cells_are_all_different_and_cover_the_table():
    cells = list(table_cells())
    assert len(set(cells)) == len(cells) == 2 * 3 * 4 * 5
    assert {cell.loss for cell in cells} == {"itervaml", "muzero", "td"}
    assert {cell.model for cell in cells} == {"deterministic", "stochastic"}
    horizons = list(horizon_cells())
    assert len(set(horizons)) == len(horizons)
    assert {(cell.m, cell.b) for cell in horizons} == {
        (m, b) for m in (1, 2, 3, 5) for b in (0, 1, 2, 3, 5)
    }


def test_what_the_paper_says():
    cell = Cell("stochastic", ALL, "value", "state", 1, 1, "unbiased", 4)
    assert not paper_says_calibrated(cell)
    assert paper_says_calibrated(Cell("stochastic", ALL, "value", "state", 0, 1, "none", 1))
    assert paper_says_calibrated(Cell("stochastic", ALL, "model", "mean", 1, 0, "unbiased", 4))
    assert not paper_says_calibrated(Cell("deterministic", ALL, "model", "mean", 1, 0, "none", 1))
    assert paper_says_calibrated(
        Cell("stochastic", DETERMINISTIC, "model", "mean", 1, 0, "none", 1)
    )


def test_rollouts_of_a_deterministic_model(generator):
    problem = draw_problem(generator, "stochastic", "full", states=4)
    one_step = rollout_regret(problem, 1, 0, 1, "none")
    cell = Cell("stochastic", DETERMINISTIC, "model", "mean", 1, 0, "none", 1)
    by_state = cell_regret(cell, [problem])
    np.testing.assert_allclose(one_step, (by_state.excess[0], by_state.floor[0]), atol=1e-14)
    for m, b in ((2, 0), (3, 1)):
        for correction, k in (("none", 1), ("unbiased", 2)):
            excess, floor = rollout_regret(problem, m, b, k, correction)
            assert excess < 1e-12 < floor
    with pytest.raises(UserError, match="at most 5 states, got 6"):
        rollout_regret(draw_problem(generator, "stochastic", "full", states=6), 1, 0, 1, "none")


def test_what_each_loss_can_update(problems):
    """The last two rows of Table 1."""
    for problem in problems["stochastic", "full"]:
        reached = {loss: update_norms(problem, loss) for loss in ("itervaml", "muzero", "td")}
        assert reached["itervaml"][0] > 1e-6
        assert reached["itervaml"][1] == 0
        assert min(reached["muzero"]) > 1e-6
        assert reached["td"][0] == 0
        assert reached["td"][1] > 1e-6
