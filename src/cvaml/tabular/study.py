"""One cell of the Garnet study: every arm and temperature on a few problems at one rank."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float

from cvaml.losses import Variant, fit_variant
from cvaml.tabular.blocks import Fits, Stopping, fit_all, stack
from cvaml.tabular.fit import Steps, Task, init_fit
from cvaml.tabular.garnet import draw_garnet, garnet_mdp
from cvaml.tabular.lowrank import draw_model
from cvaml.tabular.mdp import FiniteMDP, policy_value
from cvaml.tabular.objective import (
    Rule,
    as_problem,
    autodiff,
    coefficients,
    fast_gradients,
    has_fast_path,
)
from cvaml.tabular.sampled import sampled

if TYPE_CHECKING:
    import pandas as pd

Mode = Literal["exact", "sampled"]
SAMPLED_BLOCK = 16


@dataclass(frozen=True)
class Arm:
    """One line of the figure: a variant with its number of samples and its step sizes."""

    variant: str
    """Name of the variant."""
    k: int
    """Model samples."""
    model_step: float
    """Step of Adam for the model."""
    value_step: float
    """Step α of the value updates."""

    @property
    def spec(self) -> Variant:
        """The variant of the library."""
        chosen = fit_variant(self.variant, "tabular")
        return chosen if chosen.loss is None else fit_variant(self.variant, "tabular", self.k)


@dataclass(frozen=True)
class Cell:
    """A piece of the study that is computed and stored as one; its rows depend on nothing else."""

    rank: int
    """Rank j of the model."""
    first: int
    """Number of the first problem."""
    last: int
    """Number of the problem after the last one."""
    temperatures: tuple[float, ...]
    """Temperatures τ of the environment."""
    arms: tuple[Arm, ...]
    """What is compared."""
    seed: int = 0
    """Seed of problems, starting points and draws."""
    discount: float = 0.9
    """γ."""
    spread: float = 0.01
    """Standard deviation of the model's initial entries."""
    mode: Mode = "exact"
    """Exact expectations or draws."""
    stopping: Stopping = field(default_factory=Stopping)
    """When a fit is over."""
    final_step: float = 1.0
    """What is left of the step sizes at the last step."""
    states: int = 50
    """Number of states."""
    successors: int = 10
    """Successors of each state."""

    @property
    def name(self) -> str:
        """A stable name for files and tasks."""
        return f"rank{self.rank:03}-problems{self.first:06}-{self.last:06}"

    @property
    def fits(self) -> int:
        """Number of fits in the cell."""
        return (self.last - self.first) * len(self.temperatures) * len(self.arms)


def run_cell(
    cell: Cell, device: Any = None, done: Callable[[int], object] = lambda count: None
) -> "pd.DataFrame":
    """Computes one cell.

    Args:
        cell: what to compute; equal cells give bit-identical rows on one device type.
        device: the JAX device; the default one when not given.
        done: called with the number of fits finished since the last call.

    Returns:
        One row per arm, temperature and problem.
    """
    import jax
    import pandas as pd

    device = jax.devices()[0] if device is None else device
    mdps = _problems(cell)
    truths = [[policy_value(mdp) for mdp in row] for row in mdps]
    starts = [_start(cell, problem) for problem in range(cell.first, cell.last)]
    rows: list[pd.DataFrame] = []
    for rule, arms in _by_rule(cell).items():
        tasks = [
            _task(cell, arm, mdp, problem)
            for arm in arms
            for row in mdps
            for problem, mdp in enumerate(row, cell.first)
        ]
        repeats = len(arms) * len(cell.temperatures)
        fits = fit_all(
            rule,
            stack(tasks),
            stack(starts * repeats),
            cell.stopping,
            device,
            # A sampled step is many times longer, so fewer fits fill a core.
            block=SAMPLED_BLOCK if cell.mode == "sampled" else None,
            done=done,
        )
        keys = [
            (arm, temperature, problem)
            for arm in arms
            for temperature in cell.temperatures
            for problem in range(cell.first, cell.last)
        ]
        every_mdp = [mdp for row in mdps for mdp in row] * len(arms)
        every_truth = [truth for row in truths for truth in row] * len(arms)
        rows.append(_rows(cell, keys, fits, every_mdp, every_truth))
    order = {
        (arm.variant, arm.k, arm.model_step, arm.value_step): i for i, arm in enumerate(cell.arms)
    }
    table = pd.concat(rows, ignore_index=True)
    arm_keys = table[["variant", "k", "model_step", "value_step"]].itertuples(index=False)
    place = [order[tuple(key)] for key in arm_keys]
    return table.iloc[np.argsort(place, kind="stable")].reset_index(drop=True)


def rule_of(variant: Variant, mode: Mode) -> Rule:
    """Where a variant's gradients come from: the shared fast path wherever it is exact."""
    if mode == "sampled":
        return sampled(variant)
    return fast_gradients if has_fast_path(variant) else autodiff(variant)


def _by_rule(cell: Cell) -> dict[Rule, list[Arm]]:
    """The arms of each compiled program."""
    groups: dict[Rule, list[Arm]] = {}
    for arm in cell.arms:
        groups.setdefault(rule_of(arm.spec, cell.mode), []).append(arm)
    return groups


def _problems(cell: Cell) -> list[list[FiniteMDP]]:
    """MDPs by temperature, then problem."""
    garnets = [
        draw_garnet(cell.seed, problem, cell.states, cell.successors)
        for problem in range(cell.first, cell.last)
    ]
    return [[garnet_mdp(g, tau, cell.discount) for g in garnets] for tau in cell.temperatures]


def _start(cell: Cell, problem: int) -> Any:
    """The starting point of a problem at this rank: the same for every arm and temperature."""
    sequence = np.random.SeedSequence(cell.seed, spawn_key=(1, problem, cell.rank))
    model = draw_model(
        np.random.default_rng(sequence), cell.rank, cell.states, cell.states, cell.spread
    )
    return init_fit(model, cell.states)


def _task(cell: Cell, arm: Arm, mdp: FiniteMDP, problem: int) -> Task:
    """One fit."""
    sizes = (arm.model_step, arm.value_step, cell.final_step, cell.stopping.steps)
    seed = np.random.SeedSequence(cell.seed, spawn_key=(2, problem)).generate_state(1)[0]
    return Task(
        as_problem(mdp), coefficients(arm.spec), Steps(*(np.float32(size) for size in sizes)), seed
    )


def _rows(
    cell: Cell,
    keys: list[tuple[Arm, float, int]],
    fits: Fits,
    mdps: list[FiniteMDP],
    truths: list[Float[np.ndarray, " n"]],
) -> "pd.DataFrame":
    """Measures every fit, in float64."""
    import pandas as pd

    rows = []
    for index, ((arm, temperature, problem), mdp, truth) in enumerate(
        zip(keys, mdps, truths, strict=True)
    ):
        rows.append(
            {
                "study": "garnet",
                "problem": problem,
                "variant": arm.variant,
                "k": arm.k,
                "rank": cell.rank,
                "temperature": temperature,
                "iteration": np.nan,
                **measure(
                    mdp,
                    truth,
                    fits.values[index].astype(np.float64),
                    _kernel(fits.model.phi[index], fits.model.psi[index]),
                ),
                "steps": fits.steps[index],
                "converged": fits.converged[index],
                "model_step": arm.model_step,
                "value_step": arm.value_step,
            }
        )
    return pd.DataFrame(rows)


def measure(
    mdp: FiniteMDP,
    truth: Float[np.ndarray, " n"],
    values: Float[np.ndarray, " n"],
    kernel: Float[np.ndarray, "n n"],
) -> dict[str, float]:
    """What is reported of one fit of a Markov chain.

    Args:
        mdp: the problem, with one action.
        truth: its exact value V^π.
        values: the learned V.
        kernel: the learned model.

    Returns:
        `mse` of V, `nmse` divided by Var(V^π) over the states (1 is as bad as the mean), the same
        for the one-step estimate `r + γ E V` of the model; divided by Var(V^π), the model's squared
        value bias `(E_model V - E_P V)²`, the gap `(E_model V - E_P[r + γ P V])²` that the (1,1)
        losses close, and the model's value variance; and its entropy in nats.
    """
    rewards, true_kernel = mdp.rewards[:, 0], mdp.transitions[:, 0]
    spread = float(np.var(truth))
    ahead = kernel @ values
    mse = float(np.mean((values - truth) ** 2))
    one_step = float(np.mean((rewards + mdp.discount * ahead - truth) ** 2))
    bias = float(np.mean((ahead - true_kernel @ values) ** 2))
    gap = float(
        np.mean((ahead - true_kernel @ (rewards + mdp.discount * true_kernel @ values)) ** 2)
    )
    variance = float(np.mean(np.sum(kernel * (values[None, :] - ahead[:, None]) ** 2, axis=1)))
    log = np.log(np.where(kernel > 0, kernel, 1))
    return {
        "mse": mse,
        "nmse": mse / spread,
        "onestep_mse": one_step,
        "onestep_nmse": one_step / spread,
        "model_bias": bias / spread,
        "bellman_gap": gap / spread,
        "model_variance": variance / spread,
        "entropy": float(-np.mean(np.sum(kernel * log, axis=1))),
        "true_variance": spread,
    }


def _kernel(
    phi: Float[np.ndarray, "j n"], psi: Float[np.ndarray, "j n"]
) -> Float[np.ndarray, "n n"]:
    """The model's kernel in float64 of NumPy."""
    logits = psi.T.astype(np.float64) @ phi.astype(np.float64)
    mass = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(mass / mass.sum(axis=1, keepdims=True))
