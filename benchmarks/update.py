"""Milliseconds and FLOPs of one update and one planned action of a population, on this device.

python benchmarks/update.py --members 8
"""

import argparse
import time

import jax
import numpy as np

from cvaml.agent import population
from cvaml.agent.config import preset
from cvaml.agent.state import Flat, Spec, flat_policy


def main() -> None:
    """Prints one line for the update and one for planning."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--variant", default="cvaml-1-0")
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--observation", type=int, default=223)
    parser.add_argument("--action", type=int, default=38)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    config = preset(options.preset, variant=options.variant)
    spec = Spec(options.observation, options.action)
    keys = jax.random.split(jax.random.key(0), options.members)
    state = population.init_population(keys, config, spec)
    replay = population.init_replay(spec, options.members, 256)
    generator = np.random.default_rng(0)

    def draw(*shape: int) -> np.ndarray:
        return generator.normal(size=(options.members, *shape)).astype(np.float32)

    running = np.zeros(options.members, bool)
    for _ in range(200):
        observation = draw(options.observation)
        replay = population.add(
            replay, observation, draw(options.action), draw(), running, running, observation
        )
    update = population._update.lower(state, replay, keys, config, 1, None).compile()
    policy = flat_policy(Flat.of(state))
    act = population._act.lower(
        policy, observation, keys, np.int32(0), config, True, None
    ).compile()
    print(f"{jax.devices()[0].device_kind}, {options.members} members, {options.preset} preset")
    times = []
    for _ in range(options.repeats + 1):
        start = time.perf_counter()
        state, metrics = update(state, replay, keys)
        jax.block_until_ready(metrics)
        times.append(time.perf_counter() - start)
    _report("update", update, times[1:])
    times = []
    for step in range(options.repeats + 1):
        start = time.perf_counter()
        policy = flat_policy(Flat.of(state))
        jax.block_until_ready(act(policy, observation, keys, np.int32(step)))
        times.append(time.perf_counter() - start)
    _report("plan", act, times[1:])


def _report(name: str, compiled: jax.stages.Compiled, times: list[float]) -> None:
    flops = compiled.cost_analysis()["flops"]
    best = min(times)
    print(
        f"{name:8} {1e3 * best:9.1f} ms (median {1e3 * float(np.median(times)):.1f})  "
        f"{flops / 1e9:8.2f} GFLOP  {flops / best / 1e9:8.1f} GFLOP/s"
    )


if __name__ == "__main__":
    main()
