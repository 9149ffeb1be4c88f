"""The (m,b)-VAML loss family: unbatched arrays in, a scalar out, `jax.vmap` outside."""

from cvaml.losses.auxiliary import (
    gaussian_entropy,
    gaussian_mixture_nll,
    gaussian_nll,
    hl_gauss_decode,
    hl_gauss_encode,
    reward_loss,
    squared_error,
)
from cvaml.losses.correction import Correction, variance_correction, variance_weight
from cvaml.losses.diagnosis import CalibrationReport, calibration_report
from cvaml.losses.returns import value_targets
from cvaml.losses.vaml import (
    cvaml_loss,
    expected_vaml_loss,
    itervaml_loss,
    mb_vaml_loss,
    muzero_loss,
    td_loss,
    vaml_loss,
)
from cvaml.losses.variants import VARIANTS, Variant, fit_variant, variant

__all__ = [
    "VARIANTS",
    "CalibrationReport",
    "Correction",
    "Variant",
    "calibration_report",
    "cvaml_loss",
    "expected_vaml_loss",
    "fit_variant",
    "gaussian_entropy",
    "gaussian_mixture_nll",
    "gaussian_nll",
    "hl_gauss_decode",
    "hl_gauss_encode",
    "itervaml_loss",
    "mb_vaml_loss",
    "muzero_loss",
    "reward_loss",
    "squared_error",
    "td_loss",
    "value_targets",
    "vaml_loss",
    "variance_correction",
    "variance_weight",
    "variant",
]
