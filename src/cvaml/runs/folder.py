"""A run folder: `config.json` says what it holds, every file in it appears whole or not at all."""

import contextlib
import dataclasses
import json
import os
import platform
import secrets
import shutil
import subprocess
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import pandas as pd

from cvaml.runs.settings import to_json
from cvaml.types import UserError

_PACKAGES = ("cvaml", "jax", "jaxlib", "numpy", "equinox", "optax", "mujoco", "dm-control")

_CONTENTS = ("done.json", "metrics", "checkpoints", "tensorboard", "wandb")

Place = Callable[[Path, Path], object]


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """One folder that belongs to one configuration of one study."""

    path: Path

    @classmethod
    def open(cls, path: Path | str, study: str, settings: Mapping[str, Any]) -> "RunFolder":
        """Creates the folder, or reopens it if it already holds exactly these settings.

        Of several processes that create it at the same moment one does; to the others it is a
        folder that was there before.

        Args:
            path: the folder.
            study: the name of the study.
            settings: what determines the results; JSON values only.

        Raises:
            UserError: the folder cannot be written, or belongs to something else.
        """
        folder = cls(Path(path))
        settings = to_json(settings)
        try:
            folder.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot create the folder {path}: {error.strerror}") from None
        if not os.access(folder.path, os.W_OK):
            raise UserError(f"cannot write into the folder {path}")
        described = folder.file("config.json")
        if not described.exists():
            # hidden files are what a kill during this very step may have left
            foreign = any(not found.name.startswith(".") for found in folder.path.iterdir())
            if foreign and not described.exists():
                raise UserError(f"{path} is not empty and not a run folder; choose another --out")
            with contextlib.suppress(FileExistsError):
                folder._describe(study, settings, _place_first)
        found = folder.read_json("config.json")
        if found.get("study") != study:
            raise UserError(f"{path} holds the study {found.get('study')!r}, not {study!r}")
        differing = _differences(found.get("settings", {}), settings)
        if differing:
            raise UserError(
                f"{path} holds another configuration ({'; '.join(differing)}); choose another --out"
            )
        return folder

    def file(self, name: str) -> Path:
        """The path of one of the folder's files."""
        return self.path / name

    def write_json(self, name: str, data: object) -> None:
        """Writes a JSON file, whole or not at all."""
        self.write(name, lambda path: path.write_text(json.dumps(data, indent=1) + "\n"))

    def read_json(self, name: str) -> dict[str, Any]:
        """Reads a JSON file of the folder."""
        try:
            found: dict[str, Any] = json.loads(self.file(name).read_text())
            return found
        except (OSError, json.JSONDecodeError) as error:
            raise UserError(f"cannot read {self.file(name)}: {error}") from None

    def write_table(self, name: str, table: pd.DataFrame) -> None:
        """Writes a table as Parquet or CSV, by the name's ending, whole or not at all."""
        if name.endswith(".csv"):
            self.write(name, lambda path: table.to_csv(path, index=False))
        else:
            self.write(name, lambda path: table.to_parquet(path, index=False))

    @property
    def done(self) -> dict[str, Any] | None:
        """What `finish` wrote, or None while the run is not finished."""
        return self.read_json("done.json") if self.file("done.json").exists() else None

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Marks the run as finished; the last file a run writes."""
        self.write_json("done.json", to_json(summary))

    def start_over(self, study: str, settings: Mapping[str, Any]) -> None:
        """Deletes what a run left here, and nothing else, and begins another one."""
        for name in _CONTENTS:
            path = self.file(name)
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        self._describe(study, to_json(settings), Path.replace)

    def _describe(self, study: str, settings: object, place: Place) -> None:
        found = {"study": study, "settings": settings, **provenance()}
        text = json.dumps(found, indent=1) + "\n"
        self.write("config.json", lambda path: path.write_text(text), place)

    def write(self, name: str, save: Callable[[Path], object], place: Place = Path.replace) -> None:
        """Lets `save` write to a temporary file beside its place, then moves it there."""
        target = self.file(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        # Not the process id, which may be the same on two nodes that share the folder.
        temporary = target.with_name(f".{secrets.token_hex(4)}-{target.name}")
        try:
            save(temporary)
            place(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)


def _place_first(temporary: Path, target: Path) -> None:
    """Gives a file its name unless there is one of that name: then it raises FileExistsError.

    A hard link does both in one step. Where the file system has none, the last one wins.
    """
    try:
        target.hardlink_to(temporary)
    except FileExistsError:
        raise
    except OSError:
        temporary.replace(target)


def _differences(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """What differs between two settings, as `key: found there, wanted here`."""
    return [
        f"{key}: {found.get(key)!r} there, {wanted.get(key)!r} here"
        for key in sorted({*found, *wanted})
        if found.get(key) != wanted.get(key)
    ]


def provenance() -> dict[str, Any]:
    """Package versions, Python and the commit: of the checkout, or as $CVAML_COMMIT says."""
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    here = Path(__file__).parent
    git = ["git", "-C", str(here), "rev-parse", "HEAD"]
    try:
        found = subprocess.run(git, capture_output=True, text=True, timeout=5, check=True)
        commit = found.stdout.strip()
    except (OSError, subprocess.SubprocessError):
        commit = os.environ.get("CVAML_COMMIT", "")  # a copy without its history
    return {"versions": versions, "python": platform.python_version(), "commit": commit}
