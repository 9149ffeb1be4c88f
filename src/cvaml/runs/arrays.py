"""Trees of arrays on disk: one flat Orbax checkpoint per tree, and the check that it is whole."""

import json
import logging
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Arrays = Mapping[str, np.ndarray]
_MANIFEST = "manifest.json"


class BrokenFileError(Exception):
    """A stored file is missing, truncated or altered."""


def host_copy(tree: Any) -> dict[str, np.ndarray]:
    """The arrays of a tree by path, copied to the host so that later donation cannot touch them.

    Leaves that are not arrays (activation functions, names) belong to the configuration and are
    left out; keys of random generators are stored as their data.
    """
    arrays = {
        jax.tree_util.keystr(path): _raw(leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
        if _is_array(leaf)
    }
    return {name: np.array(value) for name, value in jax.device_get(arrays).items()}


def restore_like(template: Any, arrays: Arrays) -> Any:
    """The template with its arrays replaced by the stored ones, on the same devices.

    Raises:
        BrokenFileError: an array is missing or has another shape or type.
    """

    def restore(path: Any, leaf: Any) -> Any:
        if not _is_array(leaf):
            return leaf
        name, raw = jax.tree_util.keystr(path), _raw(leaf)
        found = np.zeros(raw.shape, raw.dtype) if raw.size == 0 else arrays.get(name)
        if found is None or np.shape(found) != raw.shape:
            shape = "missing" if found is None else f"of shape {np.shape(found)}"
            raise BrokenFileError(f"array {name} is {shape}, expected {raw.shape}")
        found = np.asarray(found, raw.dtype)
        if not isinstance(leaf, jax.Array):
            return found
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return place_like(
                leaf, jax.random.wrap_key_data(jnp.array(found), impl=jax.random.key_impl(leaf))
            )
        return place_like(leaf, found)

    return jax.tree_util.tree_map_with_path(restore, template)


def place_like(leaf: jax.Array, array: Any) -> jax.Array:
    """The array where `leaf` is: a copy, since a donated view of ours would be written to.

    An array that was not put anywhere by intent stays so: the difference would compile anew.
    """
    copy = jnp.array(array)
    placed: jax.Array = jax.device_put(copy, leaf.sharding) if leaf.committed else copy
    return placed


def save_arrays(folder: Path, arrays: Arrays) -> None:
    """Writes the arrays as one Orbax checkpoint into a folder that does not exist yet."""
    import orbax.checkpoint as ocp

    # Orbax reports every save through absl at a level meant for clusters
    logging.getLogger("absl").setLevel(logging.ERROR)
    # it also refuses arrays without elements, which the template restores from their shape
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(folder.absolute(), {k: v for k, v in arrays.items() if v.size})


def load_arrays(folder: Path) -> dict[str, np.ndarray]:
    """The arrays that `save_arrays` wrote."""
    import orbax.checkpoint as ocp

    with ocp.PyTreeCheckpointer() as checkpointer:
        found = checkpointer.restore(folder.absolute())
    return {name: np.asarray(value) for name, value in found.items()}


def write_manifest(folder: Path) -> int:
    """Records size and checksum of every file of a finished folder; returns the bytes."""
    files = {
        str(path.relative_to(folder)): [path.stat().st_size, _checksum(path)]
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    (folder / _MANIFEST).write_text(json.dumps(files))
    return sum(size for size, _ in files.values())


def check_manifest(folder: Path) -> None:
    """Raises `BrokenFileError` unless every recorded file is there, unaltered."""
    try:
        files = json.loads((folder / _MANIFEST).read_text())
        for name, (size, checksum) in files.items():
            path = folder / name
            if path.stat().st_size != size or _checksum(path) != checksum:
                raise BrokenFileError(f"{path} is truncated or altered")
    except (OSError, ValueError, TypeError) as error:
        raise BrokenFileError(f"{folder} is incomplete: {error}") from None


def _checksum(path: Path) -> int:
    checksum = 0
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        while block := file.read(1 << 22):
            checksum = zlib.crc32(block, checksum)
    return checksum


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, (jax.Array, np.ndarray, np.generic))


def _raw(leaf: Any) -> Any:
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.key_data(leaf)
    return leaf
