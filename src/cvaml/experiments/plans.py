"""The tabular studies as cells: what a sweep runs, and how it ends."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cvaml.experiments import cliffwalk, garnet
from cvaml.runs.cells import Cell, Tick
from cvaml.runs.inline import cores
from cvaml.runs.settings import from_json, to_json


@dataclass(frozen=True)
class Plan:
    """A study ready to be swept; making one writes nothing."""

    label: str
    """Name of the study."""
    root: Path
    """The folder of its results."""
    cells: list[Cell]
    """Its pieces, in the order they should run."""
    open: Callable[[], object]
    """Creates the folder, or refuses one that belongs to something else."""
    finish: Callable[[bool], object]
    """Merges and prints the results; told whether any cell ran."""
    workers: int = 1
    """Cells at once when they run inline."""
    talks: bool = False
    """Whether cells show their own progress."""
    notes: str = ""
    """What a dry run says besides the cells."""


def garnet_plan(config: garnet.Config) -> Plan:
    """The Garnet study; its folder is the one the plain command makes."""
    arms = garnet.study_arms(config)
    todo = garnet.study_cells(config, arms)
    device = garnet.find_device(config.device)
    on_cpu = device.platform == "cpu"

    def folder() -> Any:
        return garnet.open_folder(config, "garnet", arms, device)

    def finish(ran: bool) -> None:
        found = folder()
        if ran or not all(found.file(name).exists() for name in garnet.OUTPUTS):
            garnet.write_results(found, todo)
        garnet.say(found)

    cells = [
        Cell(
            name=cell.name,
            function="cvaml.experiments.plans:run_garnet_cell",
            arguments={"cell": to_json(cell), "device": device.platform},
            output=garnet.table_of(cell),
            gpus=0.0 if on_cpu else 1.0,
            work=float(cell.fits),
        )
        for cell in todo
    ]
    workers = config.workers or (cores() if on_cpu else 1)
    return Plan("garnet", Path(config.out), cells, folder, finish, workers)


def run_garnet_cell(root: Path, tick: Tick, cell: dict[str, Any], device: str) -> None:
    """One Garnet cell, into the study's folder."""
    from cvaml.runs.folder import RunFolder
    from cvaml.tabular import study

    piece = from_json(study.Cell, cell, "cell")
    rows = study.run_cell(piece, garnet.find_device(device), lambda count: tick())
    RunFolder(root).write_table(garnet.table_of(piece), rows)


def cliffwalk_plan(config: cliffwalk.Config) -> Plan:
    """The cliffwalk study; its folder is the one the plain command makes."""
    import jax

    todo = cliffwalk.cells(config)
    gpus = 0.0 if jax.default_backend() == "cpu" else 1.0

    def folder() -> Any:
        return cliffwalk.open_folder(config)

    def finish(ran: bool) -> None:
        found = folder()
        if ran or found.done is None:
            cliffwalk.merge(found, todo)
        cliffwalk.say(found)

    cells = [
        Cell(
            name=cell.name,
            function="cvaml.experiments.plans:run_cliffwalk_cell",
            arguments={"cell": to_json(cell)},
            output=cliffwalk.shard(cell),
            gpus=gpus,
        )
        for cell in todo
    ]
    return Plan("cliffwalk", config.out, cells, folder, finish, cores())


def run_cliffwalk_cell(root: Path, tick: Tick, cell: dict[str, Any]) -> None:
    """One panel of the cliffwalk study, into its folder."""
    from cvaml.runs.folder import RunFolder

    piece = from_json(cliffwalk.Cell, cell, "cell")

    def after() -> None:
        tick()

    RunFolder(root).write_table(cliffwalk.shard(piece), cliffwalk.run_cell(piece, after))
