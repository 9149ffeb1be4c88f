import struct
import sys
import types

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from cvaml.runs.writers import TensorBoard, _masked_crc, make_writer
from cvaml.types import UserError


def event_class():
    """TensorBoard's `Event`, declared here so that an independent parser reads our bytes."""
    types_ = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="event.proto", package="t", syntax="proto3")

    def message(name, *fields):
        entry = file.message_type.add(name=name)
        for number, field, kind, other in fields:
            entry.field.add(
                name=field,
                number=number,
                type=kind,
                label=types_.LABEL_REPEATED if other == ".t.Value" else types_.LABEL_OPTIONAL,
                type_name=other or None,
            )

    message("Value", (1, "tag", types_.TYPE_STRING, ""), (2, "number", types_.TYPE_FLOAT, ""))
    message("Summary", (1, "value", types_.TYPE_MESSAGE, ".t.Value"))
    message(
        "Event",
        (1, "wall_time", types_.TYPE_DOUBLE, ""),
        (2, "step", types_.TYPE_INT64, ""),
        (3, "file_version", types_.TYPE_STRING, ""),
        (5, "summary", types_.TYPE_MESSAGE, ".t.Summary"),
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Event"))


def test_checksum_of_the_standard_vector():
    crc = 0xE3069283  # CRC-32C of "123456789"
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    assert _masked_crc(b"123456789") == struct.pack("<I", masked)


def test_tensorboard_events_are_read_back(tmp_path):
    writer = make_writer("tensorboard", tmp_path, {})
    writer.write(300, {"train_return": 1.5, "loss": float("nan")})
    writer.write(100_000, {"train_return": -2.0})
    writer.close()
    (path,) = (tmp_path / "tensorboard").iterdir()
    data, events, event = path.read_bytes(), [], event_class()
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        assert data[8:12] == _masked_crc(data[:8])
        assert data[12 + length : 16 + length] == _masked_crc(data[12 : 12 + length])
        events.append(event.FromString(data[12 : 12 + length]))
        data = data[16 + length :]
    assert events[0].file_version == "brain.Event:2"
    found = [(e.step, [(v.tag, v.number) for v in e.summary.value]) for e in events[1:]]
    assert found == [(300, [("train_return", 1.5)]), (100_000, [("train_return", -2.0)])]
    assert all(e.wall_time > 1e9 for e in events)


def test_resumed_run_adds_a_file(tmp_path):
    for _ in range(2):
        TensorBoard(tmp_path).close()
    assert len(list((tmp_path / "tensorboard").iterdir())) == 2


def test_missing_package_is_told(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match="needs the package wandb"):
        make_writer("wandb", tmp_path, {})


def test_wandb_continues_the_same_run(tmp_path, monkeypatch):
    """With a stand-in for the package, which is not part of the test environment."""
    calls: list = []

    class Run:
        def log(self, values, step):
            calls.append((step, values))

        def finish(self):
            calls.append("finish")

    module = types.ModuleType("wandb")
    module.init = lambda **options: calls.append(options) or Run()
    module.util = types.SimpleNamespace(generate_id=lambda: f"id{len(calls)}")
    monkeypatch.setitem(sys.modules, "wandb", module)
    for _ in range(2):
        writer = make_writer("wandb", tmp_path, {"seed": 1})
        writer.write(5, {"loss": 0.5, "bad": float("inf")})
        writer.close()
    first, logged, finish, second, *_ = calls
    assert first == second
    assert first["resume"] == "allow"
    assert (logged, finish) == ((5, {"loss": 0.5}), "finish")
