"""Checks of values on concrete arrays: what shapes cannot say and traced code cannot see."""

import numpy as np
from jaxtyping import Bool, Float, Shaped

from cvaml.types import UserError

# Probabilities that were computed in float64, or read from a file in float32, sum to one this well.
_SUM_TOLERANCE = 1e-6


def check_finite(name: str, array: Shaped[np.ndarray, "..."]) -> None:
    """Raises UserError naming the first entry that is NaN or infinite.

    Args:
        name: what the array is called in the message.
        array: numbers of any shape.
    """
    if not np.isfinite(array).all():
        where = _first(~np.isfinite(array))
        raise UserError(f"{name} must be finite, got {array[where]} at index {where}")


def check_distribution(name: str, probabilities: Float[np.ndarray, "*batch n"]) -> None:
    """Raises UserError unless every last-axis vector is a probability distribution.

    Args:
        name: what the array is called in the message.
        probabilities: one distribution, or any number of them along the leading axes.
    """
    check_finite(name, probabilities)
    if probabilities.min() < 0:
        where = _first(probabilities < 0)
        raise UserError(f"{name} must not be negative, got {probabilities[where]} at index {where}")
    sums = probabilities.sum(axis=-1)
    wrong = np.abs(sums - 1) > _SUM_TOLERANCE
    if wrong.any():
        where = _first(wrong)
        row = f" in row {where}" if where else ""
        raise UserError(f"{name} must sum to 1, got a sum of {sums[where]:.9g}{row}")


def _first(wrong: Bool[np.ndarray, "..."] | np.bool) -> tuple[int, ...]:
    """Index of the first true entry."""
    return tuple(int(i) for i in np.argwhere(wrong)[0])


def check_discount(discount: float) -> None:
    """Raises UserError unless 0 <= discount < 1."""
    if not 0 <= discount < 1:
        raise UserError(f"discount must be in [0, 1), got {discount}")
