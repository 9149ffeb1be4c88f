"""Cells of the study: what they measure, and that how they are cut does not matter."""

from dataclasses import replace

import jax
import numpy as np
import pandas as pd
import pytest
from tabular_cases import garnet_start, garnet_task

from cvaml.losses import VARIANTS, expected_vaml_loss, variant
from cvaml.tabular import study
from cvaml.tabular.blocks import Stopping, fit_all, stack
from cvaml.tabular.mdp import FiniteMDP
from cvaml.tabular.objective import fast_gradients
from cvaml.tabular.study import Arm, Cell, measure, run_cell

ARMS = (Arm("mle", 1, 1e-2, 0.1), Arm("cvaml-1-0", 4, 3e-3, 0.1), Arm("vaml-1-0", 1, 3e-3, 0.1))
CELL = Cell(2, 0, 4, (0.1, 1.0), ARMS, stopping=Stopping(500, 250, 1e-2), states=12, successors=4)


@pytest.fixture(scope="module")
def rows():
    return run_cell(CELL)


def test_every_arm_temperature_and_problem_has_its_row(rows):
    assert len(rows) == CELL.fits == 24
    assert list(rows["variant"][:8]) == ["mle"] * 8
    assert not rows.duplicated(["variant", "k", "temperature", "problem"]).any()
    assert rows["nmse"].notna().all()
    assert set(rows["steps"]) <= {250, 500}


def test_how_the_problems_are_cut_does_not_matter(rows):
    parts = [replace(CELL, first=0, last=1), replace(CELL, first=1, last=4)]
    cut = pd.concat([run_cell(part) for part in parts])
    keys = ["variant", "k", "temperature", "problem"]
    pd.testing.assert_frame_equal(
        cut.sort_values(keys).reset_index(drop=True), rows.sort_values(keys).reset_index(drop=True)
    )


def test_order_of_arms_and_temperatures_does_not_matter(rows):
    other = run_cell(replace(CELL, arms=ARMS[::-1], temperatures=(1.0, 0.1)))
    keys = ["variant", "k", "temperature", "problem"]
    pd.testing.assert_frame_equal(
        other.sort_values(keys).reset_index(drop=True),
        rows.sort_values(keys).reset_index(drop=True),
    )


def test_replacing_the_loss_changes_the_study(rows, monkeypatch):
    def without_variance(p_model, p_true, values, k, correction, targets=None):
        return expected_vaml_loss(p_model, p_true, values, 2, "unbiased", targets)

    changed = replace(variant("vaml-1-0", 1), expected=without_variance)
    monkeypatch.setattr(study, "fit_variant", lambda name, *_: changed)
    found = run_cell(replace(CELL, arms=ARMS[2:]))
    mine = rows[rows["variant"] == "vaml-1-0"]["nmse"].to_numpy()
    calibrated = rows[rows["variant"] == "cvaml-1-0"]["nmse"].to_numpy()
    assert not np.allclose(found["nmse"], mine, rtol=0.01)
    # It now is the calibrated loss under another name, by automatic differentiation.
    np.testing.assert_allclose(found["nmse"], calibrated, rtol=0.05, atol=1e-4)


def test_every_tabular_variant_runs_and_differs_from_the_others():
    names = [name for name, found in VARIANTS.items() if "tabular" in found.applies_to]
    arms = tuple(Arm(name, variant(name).k, 1e-2, 0.1) for name in names)
    found = run_cell(replace(CELL, arms=arms, last=1, temperatures=(1.0,)))
    assert list(found["variant"]) == names
    assert np.isfinite(found["mse"]).all()
    assert found["mse"].nunique() == len(names) >= 19


def test_several_model_steps_are_differentiated_automatically():
    arms = (Arm("vaml-2-0", 1, 1e-2, 0.1), Arm("vaml-1-0", 1, 1e-2, 0.1))
    found = run_cell(replace(CELL, arms=arms, last=1, temperatures=(1.0,)))
    assert list(found["variant"]) == ["vaml-2-0", "vaml-1-0"]
    assert found["mse"].nunique() == 2


def test_sampled_cells_repeat_bit_for_bit():
    cell = replace(CELL, mode="sampled", arms=ARMS[1:2], last=2, final_step=0.02)
    first, second = run_cell(cell), run_cell(cell)
    pd.testing.assert_frame_equal(first, second)
    reseeded = run_cell(replace(cell, seed=1))
    assert not np.allclose(first["mse"], reseeded["mse"])


def test_measures_by_hand():
    # A two-state ring, V exact but for +1 in state 0; the model is the uniform kernel.
    mdp = FiniteMDP(np.array([[[0.0, 1.0]], [[1.0, 0.0]]]), np.array([[1.0], [0.0]]), 0.5)
    truth = np.array([4 / 3, 2 / 3])
    found = measure(mdp, truth, truth + np.array([1, 0]), np.full((2, 2), 0.5))
    assert found["mse"] == pytest.approx(0.5)
    assert found["nmse"] == pytest.approx(0.5 / (1 / 9))
    assert found["entropy"] == pytest.approx(np.log(2))
    # V = (7/3, 2/3): the model's mean is 3/2 and its variance (5/6)²
    assert found["model_variance"] == pytest.approx((25 / 36) / (1 / 9))
    assert found["model_bias"] == pytest.approx((25 / 36) / (1 / 9))
    # E_P[r + V'/2] = (0 + 7/6, 1 + 1/3) against 3/2 in both
    assert found["bellman_gap"] == pytest.approx((1 / 9 + 1 / 36) / 2 / (1 / 9))
    assert found["onestep_mse"] == pytest.approx(((1.75 - 4 / 3) ** 2 + (0.75 - 2 / 3) ** 2) / 2)


def test_fits_leave_on_their_own_criterion_and_others_move_in():
    device = jax.devices()[0]
    cases = [("cvaml-1-0", 1.0), ("mle", 1.0)]
    tasks = [garnet_task(n, None, i, t, model_step=3e-3)[0] for n, t in cases for i in range(3)]
    starts = [garnet_start(2, i) for _ in cases for i in range(3)]
    stopping = Stopping(steps=2000, window=250, tolerance=1e-3)
    counts = []
    fits = fit_all(
        fast_gradients, stack(tasks), stack(starts), stopping, device, block=4, done=counts.append
    )
    assert sum(counts) == 6
    assert fits.converged[:3].all()
    assert (fits.steps[:3] < 2000).all()
    assert not fits.converged[3:].any()
    assert (fits.steps[3:] == 2000).all()
    alone = fit_all(
        fast_gradients, stack(tasks[4:5]), stack(starts[4:5]), stopping, device, block=4
    )
    np.testing.assert_array_equal(alone.values[0], fits.values[4])


def test_a_diverging_fit_is_not_called_converged():
    task, _ = garnet_task("vaml-1-1", value_step=1e30)
    stopping = Stopping(steps=1000, window=250, tolerance=1.0)
    fits = fit_all(
        fast_gradients, stack([task]), stack([garnet_start(2)]), stopping, jax.devices()[0], block=2
    )
    assert not fits.converged[0]
    assert fits.steps[0] == 250


@pytest.mark.slow
def test_sampled_calibration_beats_sampled_vaml():
    arms = (Arm("cvaml-1-0", 4, 3e-3, 0.1), Arm("vaml-1-0", 4, 3e-3, 0.1))
    cell = Cell(
        5, 0, 16, (1.0,), arms, mode="sampled", stopping=Stopping(6000, 250, -1.0), final_step=0.02
    )
    rows = run_cell(cell)
    logs = np.log(rows.pivot_table(index="problem", columns="variant", values="nmse"))
    gain = (logs["vaml-1-0"] - logs["cvaml-1-0"]).to_numpy()
    resampled = np.random.default_rng(0).choice(gain, (2000, gain.size)).mean(axis=1)
    assert np.quantile(resampled, 0.025) > 0
