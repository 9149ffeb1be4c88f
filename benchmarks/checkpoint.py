"""What a checkpoint of a long run costs: 8 dogs with all of 500 000 steps in replay, paper preset.

Prints how long training waits (copying the state and the new rows to the host), how long the
write beside it takes, and the share of an interval of 10 000 agent steps that the wait is.

    .venv/bin/python benchmarks/checkpoint.py --steps-per-s 100
"""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np
import tyro

from cvaml.agent import population
from cvaml.agent.config import preset
from cvaml.agent.snapshot import new_rows
from cvaml.agent.state import Spec
from cvaml.agent.trainer import ROWS_PER_END, member_keys
from cvaml.runs.arrays import host_copy
from cvaml.runs.checkpoints import Checkpoints, Rows


@dataclass(frozen=True)
class Config:
    """Sizes of the run."""

    members: int = 8
    """Members of the population."""
    steps: int = 500_000
    """Agent steps in replay."""
    every: int = 10_000
    """Agent steps between checkpoints."""
    steps_per_s: float = 100.0
    """Agent steps a second of each member, for the share of training time."""
    observation: int = 223
    """Size of an observation."""
    action: int = 38
    """Size of an action."""


def main(config: Config) -> None:
    """Saves three checkpoints in a row and prints what each cost."""
    spec = Spec(config.observation, config.action)
    rows = population.replay_rows(config.steps, ROWS_PER_END)
    state = population.init_population(
        member_keys(tuple(range(config.members))).init, preset("paper"), spec
    )
    replay = population.init_replay(spec, config.members, rows)
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(replay)) / 2**30
    print(f"{config.members} members, replay of {rows} rows a member: {size:.2f} GiB")
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = Checkpoints(Path(folder))
        for i in range(3):
            now = np.full(config.members, config.steps - (2 - i) * config.every)
            before = now - config.every
            start, busy = time.perf_counter(), time.process_time()
            arrays = host_copy(state)
            chunk = new_rows(replay, before, now)
            waited, busy = time.perf_counter() - start, time.process_time() - busy
            assert chunk is not None
            # Zeros would be written too fast; and nothing is there before the first chunk.
            noise = {name: _noise(rows) for name, rows in chunk.arrays.items()}
            oldest = chunk.start if i == 0 else chunk.oldest
            checkpoints.save(i + 1, arrays, {}, Rows(chunk.start, noise, oldest))
            checkpoints.wait()
            (written,) = checkpoints.written()
            share = waited / (config.every / config.steps_per_s)
            print(
                f"checkpoint {i + 1}: waited {waited:.2f} s ({busy:.2f} s of CPU), "
                f"wrote {written.bytes / 1e6:.0f} MB in {written.seconds:.2f} s; "
                f"{100 * share:.2f} % of {config.every} steps at {config.steps_per_s:g} steps/s"
            )


def _noise(rows: np.ndarray) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(rows.shape).astype(rows.dtype)


if __name__ == "__main__":
    main(tyro.cli(Config))
