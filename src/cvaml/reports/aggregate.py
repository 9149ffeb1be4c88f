"""Bootstrap means and intervals from an explicit generator."""

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

RESAMPLES = 2000
_PIECE = 4_000_000  # counts drawn at once, which bounds the memory


def bootstrap_means(
    samples: Float[np.ndarray, "n c"], generator: np.random.Generator, resamples: int = RESAMPLES
) -> Float[np.ndarray, "resamples c"]:
    """Bootstrap means of several columns under the same resamplings, so that they stay paired.

    Args:
        samples: one row per independent problem.
        generator: source of the resampling; the call advances it.
        resamples: number of resamplings.

    Returns:
        The mean of each column under each resampling.
    """
    n = samples.shape[0]
    piece = max(1, _PIECE // n)
    means = []
    for start in range(0, resamples, piece):
        size = min(piece, resamples - start)
        counts = generator.multinomial(n, np.full(n, 1 / n), size=size)
        means.append(counts @ samples / n)
    return np.concatenate(means)


def bootstrap_mean_interval(
    samples: NDArray[np.floating],
    generator: np.random.Generator,
    level: float = 0.95,
    resamples: int = RESAMPLES,
) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean of independent samples.

    Args:
        samples: one number per independent problem or seed, [n] with n >= 1.
        generator: source of the resampling; the call advances it.
        level: coverage.
        resamples: number of bootstrap resamples.

    Returns:
        The lower and the upper end.
    """
    samples = np.asarray(samples, dtype=np.float64)
    if samples.ndim != 1 or samples.size == 0:
        raise ValueError(f"samples must be a non-empty vector, got shape {samples.shape}")
    tail = (1 - level) / 2
    means = bootstrap_means(samples[:, None], generator, resamples)
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)
