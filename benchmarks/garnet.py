"""Microseconds per problem-step of the Garnet fit: blocks against one problem at a time.

`python benchmarks/garnet.py` prints, for each rank and in one run on this machine:
- ours: a block of fits in one compiled single-threaded program, and two such blocks in two threads;
- a jitted step of one problem called from a Python loop;
- the same loop in eager PyTorch, where it is installed;
- the distance to the FLOP bound: the step's floating-point operations at the speed of a large
  float32 matrix product on one core.
"""

import argparse
import os
import threading
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from cvaml.losses import variant
from cvaml.tabular.blocks import BLOCK, stack
from cvaml.tabular.fit import Steps, Task, advance_block, fit_step, init_fit
from cvaml.tabular.garnet import draw_garnet, garnet_mdp
from cvaml.tabular.lowrank import draw_model
from cvaml.tabular.objective import as_problem, coefficients, fast_gradients

STATES = 50


def best_of(function: Callable[[], object], repeats: int) -> float:
    """Seconds of the fastest of some calls, after one to warm up.

    The calls are a few milliseconds each, so that some of them run undisturbed on a busy machine.
    """
    function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def cases(rank: int, count: int) -> tuple[list[Task], list]:
    """Fits of the calibrated loss at temperature 1."""
    steps = Steps(*map(np.float32, (1e-3, 0.1, 1.0, 1e4)))
    numbers = coefficients(variant("cvaml-1-0"))
    tasks, states = [], []
    for problem in range(count):
        mdp = garnet_mdp(draw_garnet(0, problem), 1.0)
        tasks.append(Task(as_problem(mdp), numbers, steps, np.uint32(problem)))
        model = draw_model(np.random.default_rng(problem), rank, STATES, STATES)
        states.append(init_fit(model, STATES))
    return tasks, states


def ours(rank: int, block: int, threads: int, window: int = 20, repeats: int = 60) -> float:
    """Wall microseconds per problem-step and thread."""
    tasks, states = (jax.device_put(stack(trees)) for trees in cases(rank, block))

    def call() -> None:
        jax.block_until_ready(advance_block(fast_gradients, tasks, states, window))

    def all_threads() -> None:
        running = [threading.Thread(target=call) for _ in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()

    return best_of(all_threads, repeats) / (block * window) * 1e6


def one_at_a_time(rank: int, steps: int = 100) -> float:
    """A jitted step of one problem, called from a Python loop."""
    (task,), (state,) = cases(rank, 1)
    task, state = jax.device_put((task, state))
    step = jax.jit(lambda task, state: fit_step(fast_gradients, task, state))

    def loop() -> None:
        now = state
        for _ in range(steps):
            now = step(task, now)
        jax.block_until_ready(now)

    return best_of(loop, 20) / steps * 1e6


def eager_torch(rank: int, steps: int = 20) -> float | None:
    """The usual PyTorch way: autograd, torch.optim.Adam, one problem, a Python loop."""
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(1)
    (task,), (state,) = cases(rank, 1)
    truth, rewards = (torch.tensor(x) for x in (task.problem.kernel, task.problem.rewards))
    phi, psi = (torch.tensor(x, requires_grad=True) for x in state.model)
    optimiser = torch.optim.Adam([phi, psi], lr=1e-3)

    def loop() -> None:
        values = torch.zeros(STATES)
        for _ in range(steps):
            kernel = torch.softmax(psi.T @ phi, dim=1)
            means = kernel @ values
            loss = torch.sum((means - truth @ values) ** 2)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            values = values + 0.1 * (rewards + 0.9 * means.detach() - values)

    return best_of(loop, 20) / steps * 1e6


def flops(rank: int) -> float:
    """Operations of one step: three products with the logits, 9 products with vectors, Adam.

    An exponential is counted as 10 and the elementwise work on the kernel as 10 per entry.
    """
    kernel = STATES * STATES
    return 3 * 2 * kernel * rank + 9 * 2 * kernel + 20 * kernel + 2 * 14 * STATES * rank


def core_speed(size: int = 512) -> float:
    """FLOP/s of a float32 matrix product in one single-threaded program."""
    options = {"xla_cpu_multi_thread_eigen": False}
    product = jax.jit(jnp.matmul, compiler_options=options)
    x = jnp.ones((size, size))
    return 2 * size**3 / best_of(lambda: jax.block_until_ready(product(x, x)), 40)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 5, 10, 50])
    parser.add_argument("--block", type=int, default=BLOCK["cpu"])
    options = parser.parse_args()
    load = os.getloadavg()[0]
    speed = core_speed()
    print(f"one core: {speed / 1e9:.0f} GFLOP/s; load average at the start {load:.1f}")
    print("µs per problem-step; 'bound' is the FLOP bound of a step at that speed")
    print("rank  ours  ours, 2 threads (per core)  one at a time  torch eager  bound  ours/bound")
    for rank in options.ranks:
        single, double = (ours(rank, options.block, threads) for threads in (1, 2))
        alone, torch_time = one_at_a_time(rank), eager_torch(rank)
        bound = flops(rank) / speed * 1e6
        torch_text = "not installed" if torch_time is None else f"{torch_time:.0f}"
        ratio = f"{alone:.0f} ({alone / single:.0f}x)"
        print(
            f"{rank:4} {single:5.1f} {double:27.1f} {ratio:>14} {torch_text:>12} {bound:6.2f}"
            f" {single / bound:11.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
