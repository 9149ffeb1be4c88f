"""For users' own agents: does sampling variance distort the value-aware loss in this batch?"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from cvaml.losses._checks import check_length, check_rank
from cvaml.losses.correction import check_correction, variance_correction
from cvaml.losses.vaml import vaml_loss

_Z95 = 1.959963984540054
MATTERS_FROM = 0.05


class Estimate(NamedTuple):
    """A mean over the batch with its normal 95 % interval."""

    mean: Float[Array, ""]
    low: Float[Array, ""]
    high: Float[Array, ""]


class CalibrationReport(NamedTuple):
    """What `calibration_report` found in a batch."""

    bias: Estimate
    """Mean of `v̄ - y`: the model's value error with its sign."""
    loss: Estimate
    """Mean of the uncorrected k-sample loss."""
    calibrated_loss: Estimate
    """Mean of the corrected loss."""
    variance_share: Estimate
    """Share of the uncorrected loss that is sampling variance of `v̄`, from 0 to 1."""
    correction_matters: Bool[Array, ""]
    """Whether that share is above 5 % even at the lower end of its interval."""

    def __str__(self) -> str:
        lines = [
            f"{name:16} {value.mean:12.5g}  [{value.low:.5g}, {value.high:.5g}]"
            for name, value in zip(self._fields[:4], self[:4], strict=True)
        ]
        verdict = "matters" if bool(self.correction_matters) else "makes no clear difference"
        return "\n".join([*lines, f"the correction {verdict} on this batch"])


def calibration_report(
    v_samples: Float[Array, "batch k"], targets: Float[Array, " batch"]
) -> CalibrationReport:
    """Splits a batch's value-aware loss into error and sampling variance, with intervals.

    Args:
        v_samples: values of k >= 2 independent model samples for each start state.
        targets: the target `y` of each start state.

    Returns:
        Means with normal 95 % intervals over the batch; the share's interval is that of a
        ratio of means (delta method).
    """
    check_rank("calibration_report", v_samples=(v_samples, 2), targets=(targets, 1))
    batch, k = v_samples.shape
    check_length("calibration_report", targets=(targets.shape[0], batch))
    check_correction("calibration_report", "unbiased", k)
    if batch < 2:
        raise ValueError(
            f"calibration_report: an interval needs a batch of at least 2, got {batch}"
        )
    losses = jax.vmap(vaml_loss)(v_samples, targets)
    variances = jax.vmap(variance_correction)(v_samples)
    mean_loss, mean_variance = jnp.mean(losses), jnp.mean(variances)
    share = mean_variance / jnp.where(mean_loss == 0, 1, mean_loss)
    ratio_error = (variances - share * losses) / jnp.where(mean_loss == 0, 1, mean_loss)
    variance_share = _estimate(share + ratio_error)
    return CalibrationReport(
        bias=_estimate(jnp.mean(v_samples - targets[:, None], axis=1)),
        loss=_estimate(losses),
        calibrated_loss=_estimate(losses - variances),
        variance_share=variance_share,
        correction_matters=variance_share.low > MATTERS_FROM,
    )


def _estimate(samples: Float[Array, " batch"]) -> Estimate:
    """Mean and normal 95 % interval of independent samples."""
    mean = jnp.mean(samples)
    half = _Z95 * jnp.std(samples, ddof=1) / jnp.sqrt(samples.shape[0])
    return Estimate(mean, mean - half, mean + half)
