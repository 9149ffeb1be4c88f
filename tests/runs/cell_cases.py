"""Functions that cells of the tests call; workers of a cluster import them from here."""

import os
import time
from pathlib import Path

from cvaml.runs.cells import Cell


def cell(function: str, name: str, folder: bool = False, **arguments) -> Cell:
    done = f"{name}/done" if folder else ""
    return Cell(name, f"cell_cases:{function}", {"name": name, **arguments}, name, done)


def write(root: Path, tick, name: str, text: str = "") -> None:
    (root / name).write_text(text)


def append(root: Path, tick, name: str) -> None:
    with (root / "calls").open("a") as file:
        file.write(f"{name}\n")
    (root / name).touch()


def say_where(root: Path, tick, name: str) -> None:
    (root / name).write_text(f"{root}\n{os.environ.get('JAX_PLATFORMS')}\n{os.environ['NPROC']}")


def fail(root: Path, tick, name: str) -> None:
    raise ValueError("no such luck\nat all")


def leave_nothing(root: Path, tick, name: str) -> None:
    pass


def crash(root: Path, tick, name: str) -> None:
    os._exit(1)


def interrupt(root: Path, tick, name: str) -> None:
    raise KeyboardInterrupt


def endless(root: Path, tick, name: str) -> None:
    while True:
        tick()
        time.sleep(0.01)


def fail_once(root: Path, tick, name: str) -> None:
    """Does half of its work, fails, and needs only the other half the next time."""
    (root / name).mkdir(exist_ok=True)
    if not (root / name / "half").exists():
        (root / name / "half").touch()
        raise ValueError("half way")
    (root / name / "done").touch()


def in_parts(root: Path, tick, name: str, parts: int, pause: float) -> None:
    """Part after part, each naming its process and node; goes on where it was."""
    import ray

    who = f"{os.getpid()} {ray.get_runtime_context().get_node_id()}"
    folder = root / name
    folder.mkdir(exist_ok=True)
    for part in range(parts):
        path = folder / f"part{part:03}"
        if not path.exists():
            time.sleep(pause)
            (folder / ".new").write_text(who)
            (folder / ".new").rename(path)
    (folder / "done").touch()
