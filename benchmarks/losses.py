"""What the correction costs: `cvaml_loss` over `vaml_loss` inside jit, value and gradient.

Run: python benchmarks/losses.py
"""

import time

import jax
import jax.numpy as jnp

from cvaml import cvaml_loss, vaml_loss

BATCH, K, REPEATS = 4096, 4, 400


def make(loss):
    """Mean loss over a batch and its gradient, as a model update would call it."""
    return jax.jit(jax.value_and_grad(lambda v, y: jax.vmap(loss)(v, y).mean()))


def seconds_per_call(function, *arguments) -> float:
    """Mean time of a call, dispatch included."""
    start = time.perf_counter()
    for _ in range(REPEATS):
        result = function(*arguments)
    jax.block_until_ready(result)
    return (time.perf_counter() - start) / REPEATS


def main() -> None:
    """Prints both times and their ratio."""
    v = jax.random.normal(jax.random.key(0), (BATCH, K))
    y = jnp.zeros(BATCH)
    plain, calibrated = make(vaml_loss), make(cvaml_loss)
    jax.block_until_ready((plain(v, y), calibrated(v, y)))
    # Alternating rounds, the best of each: what else runs on the machine hits both alike.
    rounds = [(seconds_per_call(plain, v, y), seconds_per_call(calibrated, v, y)) for _ in range(7)]
    best_plain, best_calibrated = (min(column) for column in zip(*rounds, strict=True))
    print(f"device {jax.devices()[0].device_kind}, batch {BATCH}, k {K}, value and gradient")
    print(f"vaml_loss   {best_plain * 1e6:8.1f} µs per call")
    print(f"cvaml_loss  {best_calibrated * 1e6:8.1f} µs per call")
    print(f"ratio       {best_calibrated / best_plain:8.2f}")


if __name__ == "__main__":
    main()
