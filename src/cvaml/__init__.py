"""Calibrated value-aware model learning: the public API on one screen.

    from cvaml import cvaml_loss, td_loss
    model_loss = jax.vmap(cvaml_loss)(v_samples, targets).mean()   # [batch, k], [batch]

Importing it pulls in neither mujoco nor matplotlib. The studies live in `cvaml.calibration` and
`cvaml.tabular`, the control agent in `cvaml.agent`, the PyTorch functions in `cvaml.torch`.
"""

from cvaml.losses import *  # noqa: F403  (the names are listed in losses.__all__)
from cvaml.losses import __all__ as _losses
from cvaml.types import UserError

__version__ = "0.1.0"
__all__ = [*_losses, "UserError", "__version__"]
