"""`cvaml garnet`: the paper's value estimation study on random Markov chains (its Figure 2)."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from cvaml.losses import fit_variant
from cvaml.tabular.blocks import BLOCK, Stopping
from cvaml.tabular.garnet import check_sizes, check_temperature
from cvaml.tabular.lowrank import check_rank_of_model
from cvaml.tabular.study import Arm, Cell, Mode, rule_of, run_cell
from cvaml.types import UserError, usable_cores

if TYPE_CHECKING:
    from cvaml.runs.folder import RunFolder

PROBLEMS_PER_CELL = 16
WINDOW = 250
OUTPUTS = ("results.parquet", "summary.csv", "paired.csv", "figure.png", "figure.pdf")
TUNED = {
    ("mle", 1): (1e-1, 0.1),
    ("vaml-1-0", 1): (1e-3, 0.3),
    ("vaml-1-0", 4): (1e-2, 0.1),
    ("cvaml-1-0", 4): (3e-3, 0.1),
    ("vaml-1-1", 1): (3e-2, 0.3),
    ("vaml-1-1", 4): (1e-2, 0.1),
    ("cvaml-1-1", 4): (3e-1, 0.3),
    ("printed-1-0", 4): (3e-3, 0.3),
    ("cvaml-1-1+td", 4): (3e-2, 0.3),
    ("vaml-1-0+kl", 1): (1e-1, 0.3),
    ("vaml-1-0+kl", 4): (1e-1, 0.3),
    ("cvaml-1-0+kl", 4): (1e-1, 0.1),
}
"""Steps of model and value that `cvaml garnet-tune` found best in the exact mode, by k."""
UNTUNED = (3e-3, 0.1)
"""Steps of everything else, and of the sampled mode."""


@dataclass(frozen=True)
class Config:
    """Value error of low-rank models on Garnet problems, for every variant of the loss."""

    out: str = "runs/garnet"
    """Run folder; running again completes what is missing."""
    problems: int = 24
    """Independent problems, shared by all variants."""
    ranks: tuple[int, ...] = (1, 2, 3, 5, 10, 20)
    """Ranks of the model."""
    temperatures: tuple[float, ...] = (0.001, 0.01, 0.1, 0.3, 1.0, 10.0)
    """Temperatures of the environment, from deterministic to uniform."""
    variants: tuple[str, ...] = (
        "mle",
        "vaml-1-0",
        "cvaml-1-0",
        "vaml-1-1",
        "cvaml-1-1",
        "printed-1-0",
        "cvaml-1-1+td",
        "vaml-1-0+kl",
        "cvaml-1-0+kl",
    )
    """What is compared."""
    k: tuple[int, ...] = (1, 4)
    """Model samples: each variant runs with every k it can use. A corrected loss needs two
    samples or more and skips k = 1; mle draws none and runs once."""
    mode: Mode = "exact"
    """Expectations in closed form, or k draws with real successors and decaying steps."""
    steps: int = 4000
    """Most steps of one fit, counted in windows of 250 (or one window, if fewer are asked for)."""
    tolerance: float = 1e-3
    """A fit has converged when V moves less than this share of its spread in 250 steps."""
    discount: float = 0.9
    """The discount γ."""
    spread: float = 0.01
    """Standard deviation of the model's initial entries."""
    model_step: float | None = None
    """Step of Adam for every variant's model; by default the tuned one of each."""
    value_step: float | None = None
    """Step of the value updates for every variant; by default the tuned one of each."""
    states: int = 50
    """Number of states."""
    successors: int = 10
    """Successors of each state."""
    seed: int = 0
    """Seed of problems, starting points and draws."""
    device: Literal["auto", "cpu", "gpu"] = "auto"
    """Where to compute."""
    workers: int | None = None
    """Cells computed at once; by default one for each core, one on a GPU."""


def main(config: Config) -> int:
    """Completes the study in its folder and prints what it found."""
    arms = study_arms(config)
    device = find_device(config.device)
    cells = study_cells(config, arms, device.platform)
    folder = open_folder(config, "garnet", arms, device)
    fresh = complete(folder, cells, device, config.workers, "garnet")
    if fresh or not all(folder.file(name).exists() for name in OUTPUTS):
        write_results(folder, cells)
    say(folder)
    return 0


def study_arms(config: Config) -> tuple[Arm, ...]:
    """The arms a configuration asks for; raises UserError for any that cannot run."""
    if not config.variants:
        raise UserError("no variants given; name at least one")
    if any(count < 1 for count in config.k) or not config.k:
        raise UserError(f"k must be one or more whole numbers of at least 1, got {config.k}")
    arms = []
    exact = config.mode == "exact"
    for name in dict.fromkeys(config.variants):
        base = fit_variant(name, "tabular")
        counts = sorted(set(config.k)) if base.loss is not None else [base.k]
        if base.correction != "none":
            counts = [count for count in counts if count >= 2]
            if not counts:
                raise UserError(f"variant {name!r} needs k of at least 2, got {config.k}")
        for count in counts:
            model_step, value_step = tuned_steps(name, count) if exact else UNTUNED
            arm = Arm(
                name,
                count,
                model_step if config.model_step is None else config.model_step,
                value_step if config.value_step is None else config.value_step,
            )
            rule_of(arm.spec, config.mode)
            arms.append(arm)
    return tuple(arms)


def tuned_steps(name: str, k: int) -> tuple[float, float]:
    """The tuned steps of a variant; for another k those of its largest tuned k."""
    if (name, k) in TUNED:
        return TUNED[name, k]
    others = [steps for (known, _), steps in sorted(TUNED.items()) if known == name]
    return others[-1] if others else UNTUNED


def study_cells(config: Config, arms: tuple[Arm, ...], platform: str = "cpu") -> list[Cell]:
    """The cells of a configuration, the slowest first; raises UserError for bad values.

    A cell is a small piece for one core of a CPU, and fills one block of an accelerator.
    """
    for rank in config.ranks:
        check_rank_of_model(rank)
    for temperature in config.temperatures:
        check_temperature(temperature)
    check_sizes(config.states, config.successors)
    for name, least in (("problems", 1), ("steps", 1), ("seed", 0), ("states", 2)):
        if getattr(config, name) < least:
            raise UserError(f"{name} must be at least {least}, got {getattr(config, name)}")
    if not config.ranks or not config.temperatures:
        raise UserError("at least one rank and one temperature are needed")
    if not 0 <= config.discount < 1:
        raise UserError(f"the discount must be at least 0 and below 1, got {config.discount}")
    for name in ("tolerance", "spread"):
        if not 0 <= getattr(config, name) < float("inf"):
            raise UserError(f"{name} must be at least 0 and finite, got {getattr(config, name)}")
    for name in ("model_step", "value_step"):
        step = getattr(config, name)
        if step is not None and not 0 < step < float("inf"):
            raise UserError(f"{name} must be positive and finite, got {step}")
    if config.workers is not None and config.workers < 1:
        raise UserError(f"workers must be at least 1, got {config.workers}")
    exact = config.mode == "exact"
    size = PROBLEMS_PER_CELL
    if platform != "cpu":
        size = max(size, BLOCK["gpu"] // (len(arms) * len(set(config.temperatures))))
    return [
        Cell(
            rank=rank,
            first=first,
            last=min(first + size, config.problems),
            temperatures=tuple(sorted(set(config.temperatures))),
            arms=arms,
            seed=config.seed,
            discount=config.discount,
            spread=config.spread,
            mode=config.mode,
            # Draws never settle, so sampled fits run to the end under a decaying step.
            stopping=Stopping(
                config.steps, min(WINDOW, config.steps), config.tolerance if exact else -1.0
            ),
            final_step=1.0 if exact else 0.02,
            states=config.states,
            successors=config.successors,
        )
        for rank in sorted(set(config.ranks), reverse=True)
        for first in range(0, config.problems, size)
    ]


def find_device(name: str) -> Any:
    """The JAX device of that kind."""
    import jax

    try:
        return jax.devices(None if name == "auto" else name)[0]
    except RuntimeError:
        kinds = sorted({device.platform for device in jax.devices()})
        raise UserError(f"no device {name!r} here; there is {', '.join(kinds)}") from None


def open_folder(config: Any, study: str, arms: Sequence[Arm], device: Any) -> "RunFolder":
    """The run folder of everything that determines the results."""
    from cvaml.runs.folder import RunFolder

    settings = asdict(config) | {"arms": [asdict(arm) for arm in arms], "device": device.platform}
    for name in ("out", "workers"):
        settings.pop(name)
    return RunFolder.open(config.out, study, settings)


def complete(
    folder: "RunFolder", cells: Sequence[Cell], device: Any, workers: int | None, name: str
) -> bool:
    """Computes the cells whose table is missing, several at once, and stores each.

    Returns:
        Whether anything was computed.
    """
    from cvaml.runs.progress import Progress

    missing = [cell for cell in cells if not folder.file(table_of(cell)).exists()]
    if not missing:
        return False
    lock, stopped = threading.Lock(), threading.Event()
    workers = workers or (usable_cores() if device.platform == "cpu" else 1)
    with (
        Progress(sum(cell.fits for cell in missing), name, "fits") as progress,
        ThreadPoolExecutor(workers) as pool,
    ):

        def advance(count: int) -> None:
            if stopped.is_set():  # ends a cell that nobody waits for any more
                raise RuntimeError("stopped")
            with lock:
                progress.advance(count)

        waiting = {pool.submit(run_cell, cell, device, advance): cell for cell in missing}
        try:
            for future in as_completed(waiting):
                folder.write_table(table_of(waiting[future]), future.result())
        except BaseException:
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return True


def table_of(cell: Cell) -> str:
    """The file of a cell's rows in the run folder."""
    return f"cells/{cell.name}.parquet"


def write_results(folder: "RunFolder", cells: Sequence[Cell]) -> None:
    """Joins the cells' tables without holding them all, then writes the report."""
    import pyarrow.parquet as parquet

    from cvaml.reports.garnet import write_report

    def join(path: Any) -> None:
        ordered = sorted(cells, key=lambda cell: (cell.rank, cell.first))
        schema = parquet.read_schema(folder.file(table_of(ordered[0])))
        with parquet.ParquetWriter(path, schema) as writer:
            for cell in ordered:
                writer.write_table(parquet.read_table(folder.file(table_of(cell)), schema=schema))

    folder.write("results.parquet", join)
    write_report(folder)


def say(folder: "RunFolder") -> None:
    """Prints the table, the findings and where the files are."""
    import pandas as pd

    from cvaml.reports.garnet import findings, short_table

    summary = pd.read_csv(folder.file("summary.csv"))
    paired = pd.read_csv(folder.file("paired.csv"))
    print(short_table(summary))
    print()
    for sentence in findings(summary, paired):
        print(sentence)
    print(f"\nFigure: {folder.file('figure.png')}; tables: summary.csv, paired.csv and")
    print(f"results.parquet in {folder.path}")
