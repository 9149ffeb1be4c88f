"""Optional copies of the metrics for TensorBoard and Weights & Biases.

A writer receives the same numbers as the metrics store. TensorBoard's event files are simple
enough to be written here: records of length, checksum and a protocol-buffer `Event`
(`wall_time` = 1, `step` = 2, `summary` = 5 with `value` = 1 of `tag` = 1, `simple_value` = 2), so
no package is needed; Weights & Biases is imported only when it is asked for.
"""

import functools
import math
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from cvaml.types import UserError

WriterName = Literal["tensorboard", "wandb"]


@runtime_checkable
class Writer(Protocol):
    """Receives numbers by name as they are logged."""

    def write(self, step: int, values: Mapping[str, float | int]) -> None:
        """Records the values at an agent step; what is not finite is left out."""

    def close(self) -> None:
        """Makes everything durable."""


def make_writer(name: WriterName, folder: Path, settings: Mapping[str, Any]) -> Writer:
    """The writer of that name, into the run folder.

    Args:
        name: `tensorboard` or `wandb`.
        folder: the run folder.
        settings: the configuration, shown beside the curves.

    Raises:
        UserError: the package it needs is not installed.
    """
    return TensorBoard(folder) if name == "tensorboard" else WeightsAndBiases(folder, settings)


class TensorBoard:
    """Event files in `tensorboard/`; a resumed run adds a file."""

    def __init__(self, folder: Path) -> None:
        (folder / "tensorboard").mkdir(exist_ok=True)
        path = folder / "tensorboard" / f"events.out.tfevents.{time.time_ns()}.cvaml"
        self.file = path.open("ab")
        self._record(_field(3, b"brain.Event:2"))

    def write(self, step: int, values: Mapping[str, float | int]) -> None:
        """Appends one event with all values."""
        entries = b"".join(
            _field(1, _field(1, tag.encode()) + b"\x15" + struct.pack("<f", value))
            for tag, value in values.items()
            if math.isfinite(value)
        )
        self._record(b"\x10" + _varint(step) + _field(5, entries))
        self.file.flush()

    def close(self) -> None:
        """Closes the file."""
        self.file.close()

    def _record(self, content: bytes) -> None:
        event = b"\x09" + struct.pack("<d", time.time()) + content
        length = struct.pack("<Q", len(event))
        self.file.write(length + _masked_crc(length) + event + _masked_crc(event))


class WeightsAndBiases:
    """A run in `wandb/`; a resumed run continues it. `WANDB_MODE=offline` needs no network."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        try:
            import wandb  # type: ignore[import-not-found, unused-ignore]
        except ImportError:
            raise UserError(
                "the writer 'wandb' needs the package wandb, which is not installed"
            ) from None
        identity = folder / "wandb" / "run-id"
        identity.parent.mkdir(exist_ok=True)
        if not identity.exists():
            identity.write_text(wandb.util.generate_id())
        self.run = wandb.init(
            project="cvaml",
            id=identity.read_text(),
            resume="allow",
            dir=str(folder),
            config=dict(settings),
        )

    def write(self, step: int, values: Mapping[str, float | int]) -> None:
        """Logs all values at one step."""
        self.run.log({k: v for k, v in values.items() if math.isfinite(v)}, step=step)

    def close(self) -> None:
        """Finishes the run."""
        self.run.finish()


def _varint(number: int) -> bytes:
    """A protocol-buffer integer: seven bits a byte, lowest first."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _field(number: int, content: bytes) -> bytes:
    """A protocol-buffer field of bytes."""
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


@functools.cache
def _crc_table() -> list[int]:
    """CRC-32C (Castagnoli) of every byte."""
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


def _masked_crc(data: bytes) -> bytes:
    """The checksum of a record, rotated and shifted as the format asks."""
    crc, table = 0xFFFFFFFF, _crc_table()
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
