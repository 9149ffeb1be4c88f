"""Runs cells as Ray tasks on a local or an existing cluster.

Where a worker sees the study's folder it works in it, so that a cell whose node is lost goes on
elsewhere from the files it left. Where it does not, a *desk* (an actor on this node) takes every
file as it changes and hands a lost cell's files to the next worker.
"""

import contextlib
import math
import os
import shutil
import tempfile
import threading
import time
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from cvaml.runs.board import Board
from cvaml.runs.cells import Cell, reason_of
from cvaml.runs.inline import cores
from cvaml.runs.lock import is_locked
from cvaml.types import UserError

Files = Literal["auto", "shared", "pull"]
_OBJECT_STORE = 200 * 2**20
_LOCK_WAIT_S = 60.0


@dataclass(frozen=True)
class RayExecutor:
    """Cells as Ray tasks with CPU and GPU resources."""

    address: str | None = None
    """An existing cluster, `auto` or `host:port`; a local one is started if not given."""
    files: Files = "auto"
    """Whether workers write into the study's folder, or into one of their own from which the
    files are pulled; auto asks each worker whether it sees the folder."""
    retries: int = 3
    """How often a cell that was lost with its process or node is run again."""
    pull_every_s: float = 30.0
    """Seconds between pulls of a running cell's files."""

    def run(self, cells: Sequence[Cell], root: Path, board: Board) -> None:
        """Runs every cell; one that raises is reported, one that was lost is run again."""
        ray = _ray()
        root = root.resolve()
        with _cluster(self.address), _token(root) as token:
            _check_resources(cells, wait=self.address is not None)
            place = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
            here = place(ray.get_runtime_context().get_node_id(), soft=False)
            desk = ray.remote(_Desk).options(num_cpus=0, scheduling_strategy=here).remote(str(root))
            how: dict[str, Any] = {"root": str(root), "token": token}
            how |= {"files": self.files, "pull_every_s": self.pull_every_s}
            task = ray.remote(_work)
            waiting: dict[Any, Cell] = {}
            losses = dict.fromkeys((cell.name for cell in cells), 0)

            def submit(cell: Cell) -> None:
                options = task.options(
                    num_cpus=cell.cpus,
                    num_gpus=cell.gpus,
                    max_retries=0,  # lost cells are counted and shown here
                    name=cell.name,
                    runtime_env={"env_vars": environment(cell)},
                )
                waiting[options.remote(asdict(cell), how, desk)] = cell

            for cell in cells:
                submit(cell)
            while waiting:
                ready, _ = ray.wait(list(waiting), num_returns=1, timeout=0.5)
                for name in ray.get(desk.starts.remote()):
                    board.started(name)
                for reference in ready:
                    cell = waiting.pop(reference)
                    try:
                        reason = ray.get(reference)
                    except ray.exceptions.RayError as error:
                        losses[cell.name] += 1
                        lost = " ".join(str(error).split())[:200]
                        if losses[cell.name] > self.retries:
                            board.fail(cell.name, f"lost {losses[cell.name]} times: {lost}")
                        else:
                            board.retry(cell.name, lost)
                            submit(cell)
                        continue
                    if reason:
                        board.fail(cell.name, reason)
                    else:
                        board.done(cell.name)
                board.refresh()


def environment(cell: Cell) -> dict[str, str]:
    """Variables of a cell's process: no more threads than cores, and the GPU only if asked for."""
    threads = str(max(1, math.floor(cell.cpus)))
    found = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), threads)
    found["NPROC"] = threads  # what XLA takes as the number of cores
    if not cell.gpus:
        found["JAX_PLATFORMS"] = "cpu"
    elif cell.gpus < 1:
        found["XLA_PYTHON_CLIENT_MEM_FRACTION"] = f"{0.9 * cell.gpus:.3f}"
    return found


def _ray() -> Any:
    """Ray, which is imported only where it is used."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Otherwise Ray warns that it will some day hide GPUs from tasks that ask for none.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
        import ray.util.scheduling_strategies
    except ImportError:
        raise UserError("--executor ray needs Ray: pip install 'cvaml[sweep]'") from None
    return ray


@contextlib.contextmanager
def _cluster(address: str | None) -> Iterator[None]:
    """A connection to the cluster; one that exists already is used and left as it is."""
    ray = _ray()
    if ray.is_initialized():
        yield
        return
    if address is not None and address.startswith("ray://"):
        raise UserError(f"--address {address}: run on a node of the cluster, with its host:port")
    local = {"num_cpus": cores(), "object_store_memory": _OBJECT_STORE, "include_dashboard": False}
    try:
        with warnings.catch_warnings():
            # JAX warns of any fork; those of Ray start another program at once.
            warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called")
            ray.init(
                address=address or "local",
                log_to_driver=False,
                logging_level="ERROR",
                **({} if address else local),
            )
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"no Ray cluster at {address or 'this machine'}: {reason}") from None
    try:
        yield
    finally:
        ray.shutdown()


@contextlib.contextmanager
def _token(root: Path) -> Iterator[str]:
    """A file by which a worker recognises the study's folder."""
    name = f".sweep-{uuid.uuid4().hex}"
    (root / name).touch()
    try:
        yield name
    finally:
        (root / name).unlink(missing_ok=True)


def _check_resources(cells: Sequence[Cell], wait: bool) -> None:
    """Refuses cells that no node can hold; an existing cluster may still grow."""
    ray = _ray()
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    for cell in cells:
        needs = {"CPU": cell.cpus, "GPU": cell.gpus}
        fits = any(all(node.get(k, 0) >= v for k, v in needs.items()) for node in nodes)
        if not fits and not wait:
            have = ", ".join(f"{n.get('CPU', 0):g} CPUs, {n.get('GPU', 0):g} GPUs" for n in nodes)
            raise UserError(
                f"cell {cell.name} needs {cell.cpus:g} CPUs, {cell.gpus:g} GPUs; there are {have}"
            )


class _Desk:
    """Lives on the node of the study's folder: notes starts, writes and reads files there."""

    def __init__(self, root: str) -> None:
        self.root = Path(root)
        self.begun: list[str] = []

    def start(self, name: str) -> None:
        self.begun.append(name)

    def starts(self) -> list[str]:
        found, self.begun = self.begun, []
        return found

    def names(self, output: str) -> list[str]:
        """Files of a cell that were pulled before."""
        return [str(path.relative_to(self.root)) for path in _files(self.root / output)]

    def read(self, name: str) -> bytes:
        return (self.root / name).read_bytes()

    def begin(self, cell: str) -> None:
        """Forgets what was sent and never committed."""
        shutil.rmtree(self._sent(cell), ignore_errors=True)

    def write(self, cell: str, name: str, content: bytes) -> None:
        """Keeps a file aside until `commit`."""
        target = self._sent(cell) / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)

    def commit(self, cell: str, removed: list[str]) -> None:
        """Puts the files in their places: a lost worker never leaves half of them."""
        sent = self._sent(cell)
        for path in [path for path in sent.rglob("*") if path.is_file()]:
            target = self.root / path.relative_to(sent)
            target.parent.mkdir(parents=True, exist_ok=True)
            path.replace(target)
        shutil.rmtree(sent, ignore_errors=True)
        for name in removed:
            (self.root / name).unlink(missing_ok=True)
            for parent in Path(name).parents:
                with contextlib.suppress(OSError):  # not empty
                    (self.root / parent).rmdir()

    def _sent(self, cell: str) -> Path:
        return self.root / f".pull-{cell}"


def _work(described: Mapping[str, Any], how: Mapping[str, Any], desk: Any) -> str:
    """A cell in a worker's process; returns why it failed, or nothing."""
    cell, root = Cell(**described), Path(how["root"])
    desk.start.remote(cell.name)
    sees = (root / how["token"]).exists()
    try:
        if how["files"] == "shared" and not sees:
            raise UserError(f"this worker does not see {root}, which was said to be shared")
        if how["files"] == "pull" or not sees:
            _work_apart(cell, desk, how["pull_every_s"])
        else:
            _wait_for_lock(root / cell.output)
            cell.run(root, lambda: None)
    except Exception as error:
        return reason_of(error)
    return ""


def _work_apart(cell: Cell, desk: Any, every_s: float) -> None:
    """Runs a cell in a folder of its own, beginning with what was pulled of it before."""
    ray = _ray()
    with tempfile.TemporaryDirectory(prefix="cvaml-") as folder:
        root = Path(folder)
        (root / cell.output).parent.mkdir(parents=True, exist_ok=True)
        for name in ray.get(desk.names.remote(cell.output)):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(ray.get(desk.read.remote(name)))
        seen = _state(root / cell.output)
        over = threading.Event()

        def push() -> None:
            """Sends what changed, all of it or nothing."""
            ray.get(desk.begin.remote(cell.name))
            now = _state(root / cell.output)
            for path in (path for path in now if seen.get(path) != now[path]):
                try:
                    content = path.read_bytes()
                except FileNotFoundError:  # the cell has replaced it: a later push will do
                    return
                ray.get(desk.write.remote(cell.name, str(path.relative_to(root)), content))
            removed = [str(path.relative_to(root)) for path in seen.keys() - now.keys()]
            ray.get(desk.commit.remote(cell.name, removed))
            seen.clear()
            seen.update(now)

        def push_now_and_then() -> None:
            while not over.wait(every_s):
                push()

        thread = threading.Thread(target=push_now_and_then, daemon=True)
        thread.start()
        try:
            cell.run(root, lambda: None)
        finally:  # what a failed cell left is kept, too
            over.set()
            thread.join()
            push()


def _files(output: Path) -> list[Path]:
    """The files of an output; hidden ones are unfinished or locks."""
    if output.is_file():
        return [output]
    found = [path for path in output.rglob("*") if path.is_file()]
    hidden = (any(part.startswith(".") for part in p.relative_to(output).parts) for p in found)
    return [path for path, skip in zip(found, hidden, strict=True) if not skip]


def _state(output: Path) -> dict[Path, tuple[int, int]]:
    """Time and size of every file of an output."""
    found = {}
    for path in _files(output):
        with contextlib.suppress(FileNotFoundError):
            status = path.stat()
            found[path] = (status.st_mtime_ns, status.st_size)
    return found


def _wait_for_lock(folder: Path) -> None:
    """The last processes of a lost node may take a moment to die."""
    until = time.monotonic() + _LOCK_WAIT_S
    while folder.is_dir() and is_locked(folder) and time.monotonic() < until:
        time.sleep(0.5)
