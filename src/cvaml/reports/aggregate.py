"""Bootstrap intervals from an explicit generator."""

import numpy as np
from numpy.typing import NDArray


def bootstrap_mean_interval(
    samples: NDArray[np.floating],
    generator: np.random.Generator,
    level: float = 0.95,
    resamples: int = 2000,
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
    n = samples.size
    counts = generator.multinomial(n, np.full(n, 1 / n), size=resamples)
    tail = (1 - level) / 2
    low, high = np.quantile(counts @ samples / n, [tail, 1 - tail])
    return float(low), float(high)
