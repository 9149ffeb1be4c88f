import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cvaml import calibration_report


def test_hand_worked():
    samples = jnp.array([[1.0, 3.0], [4.0, 4.0]])  # means 2 and 4, s²/k 1 and 0
    report = calibration_report(samples, jnp.array([0.0, 2.0]))
    np.testing.assert_allclose(report.bias.mean, 2.0)
    np.testing.assert_allclose(report.loss.mean, 4.0)
    np.testing.assert_allclose(report.calibrated_loss.mean, 3.5)
    np.testing.assert_allclose(report.variance_share.mean, 0.125)
    half = 1.959964 * np.std([3.0, 4.0], ddof=1) / np.sqrt(2)
    np.testing.assert_allclose(report.calibrated_loss.high, 3.5 + half, rtol=1e-5)
    assert not report.correction_matters


@pytest.mark.parametrize(("spread", "bias", "matters"), [(2.0, 0.0, True), (0.1, 2.0, False)])
def test_known_answers(generator, spread, bias, matters):
    batch, k = 4000, 4
    targets = generator.normal(size=batch).astype(np.float32)
    noise = spread * generator.normal(size=(batch, k)).astype(np.float32)
    samples = targets[:, None] + np.float32(bias) + noise
    report = jax.jit(calibration_report)(jnp.asarray(samples), jnp.asarray(targets))
    share = (spread**2 / k) / (spread**2 / k + bias**2)
    assert report.variance_share.low < share < report.variance_share.high
    assert report.bias.low < bias < report.bias.high
    assert report.calibrated_loss.low < bias**2 < report.calibrated_loss.high
    assert bool(report.correction_matters) is matters
    assert ("matters on" in str(report)) is matters


def test_interval_covers_the_share(generator):
    """95 % of 400 repetitions, within three standard errors of that."""
    draws = generator.normal(size=(400, 200, 3)).astype(np.float32) + np.float32(0.5)
    reports = jax.vmap(calibration_report)(jnp.asarray(draws), jnp.zeros((400, 200)))
    share = (1 / 3) / (1 / 3 + 0.25)
    low, high = np.asarray(reports.variance_share.low), np.asarray(reports.variance_share.high)
    assert abs(np.mean((low < share) & (share < high)) - 0.95) < 3 * np.sqrt(0.95 * 0.05 / 400)


def test_no_loss_at_all_is_no_variance():
    report = calibration_report(jnp.zeros((3, 2)), jnp.zeros(3))
    assert report.variance_share.mean == 0


def test_bad_input(unchecked):
    with pytest.raises(ValueError, match="k must be at least 2"):
        calibration_report(jnp.zeros((3, 1)), jnp.zeros(3))
    with pytest.raises(ValueError, match="targets must have length 3"):
        calibration_report(jnp.zeros((3, 2)), jnp.zeros(2))
    with pytest.raises(ValueError, match="batch of at least 2, got 1"):
        calibration_report(jnp.zeros((1, 2)), jnp.zeros(1))
