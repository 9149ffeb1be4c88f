"""Many fits through blocks of one shape: each leaves on its own criterion, the next moves in.

A block always has the same shape, and a fit does not depend on its place in it; so results are
bit-identical however many problems there are, however they are split and in whatever order.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from cvaml.tabular.fit import FitState, Task, advance_block
from cvaml.tabular.lowrank import LowRank
from cvaml.tabular.objective import Rule

BLOCK = {"cpu": 96, "gpu": 4096}
"""Fits in a block: what the caches of one core hold, and what fills an accelerator."""


@dataclass(frozen=True)
class Stopping:
    """When a fit is over."""

    steps: int = 6000
    """Most steps of one fit."""
    window: int = 250
    """Steps between two looks at the criterion."""
    tolerance: float = 1e-5
    """A fit has converged when V moves less than this share of its spread over a window."""


class Fits(NamedTuple):
    """Finished fits, in the order they were given; the leading axis numbers them."""

    model: LowRank
    values: Float[np.ndarray, "count n"]
    steps: Int[np.ndarray, " count"]
    """Steps each of them took."""
    converged: Bool[np.ndarray, " count"]
    """Whether the criterion was met; False if the steps ran out or V is not finite."""


def stack(trees: list[Any]) -> Any:
    """Stacks equal trees of arrays along a new leading axis, in NumPy."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


def fit_all(
    rule: Rule,
    tasks: Task,
    starts: FitState,
    stopping: Stopping,
    device: Any,
    block: int | None = None,
    done: Callable[[int], object] = lambda count: None,
) -> Fits:
    """Fits every task on one device.

    Args:
        rule: where the gradients come from.
        tasks: stacked tasks; every array has a leading axis of length count.
        starts: stacked starting points.
        stopping: when a fit is over.
        device: a JAX device.
        block: fits in a block; by default what suits the device.
        done: called with the number of fits finished since the last call.

    Returns:
        The finished fits, in the order of the tasks.
    """
    count = int(np.shape(tasks.seed)[0])
    size = BLOCK.get(device.platform, BLOCK["gpu"]) if block is None else block
    results = jax.tree.map(np.array, (starts.model, starts.values))
    steps, converged = np.zeros(count, np.int64), np.zeros(count, bool)
    # Slots beyond the tasks repeat the first one and are never read.
    slots = np.full(size, -1)
    waiting = deque(range(count))
    held = jax.tree.map(lambda leaf: np.repeat(leaf[:1], size, axis=0), (tasks, starts))
    free = np.arange(size)
    while True:
        entering = free[: len(waiting)]
        if entering.size:
            slots[entering] = [waiting.popleft() for _ in entering]
            held = jax.tree.map(np.array, held)
            _put(held, entering, (tasks, starts), slots[entering])
            held = jax.device_put(held, device)
        if (slots < 0).all():
            return Fits(results[0], results[1], steps, converged)
        state, movement = advance_block(rule, *held, stopping.window)
        held = (held[0], state)
        settled = np.asarray(movement.change) <= stopping.tolerance
        finite = np.asarray(movement.finite)
        spent = np.asarray(state.step)
        free = np.flatnonzero((slots >= 0) & (settled | ~finite | (spent >= stopping.steps)))
        if free.size:
            leaving = slots[free]
            _put(results, leaving, jax.tree.map(np.asarray, (state.model, state.values)), free)
            steps[leaving], converged[leaving] = spent[free], (settled & finite)[free]
            slots[free] = -1
            done(free.size)
        free = np.flatnonzero(slots < 0)


def _put(
    into: Any, where: Int[np.ndarray, " k"], source: Any, chosen: Int[np.ndarray, " k"]
) -> None:
    """Copies entries `chosen` of one tree of arrays to the entries `where` of another."""

    def copy(target: np.ndarray, leaf: np.ndarray) -> None:
        target[where] = leaf[chosen]

    jax.tree.map(copy, into, source)
