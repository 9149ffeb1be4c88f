"""Observations and rewards of dm_control's humanoid and dog tasks, for a whole batch at once.

The definitions are dm_control's (`suite/humanoid.py`, `suite/dog.py`), the arithmetic runs over
the member axis of `mujoco.batch.Batch`. `tests/envs/test_dmc.py` holds both against dm_control.
"""

from typing import Protocol

import mujoco
import numpy as np
from jaxtyping import Float64
from mujoco.batch import Batch


class Body(Protocol):
    """What a batch of one body shows and is paid for, from the arrays bound to the batch."""

    def observe(self) -> Float64[np.ndarray, "S o"]:
        """The flattened observation of every member."""

    def reward(self) -> Float64[np.ndarray, "S"]:
        """The reward of the last control step of every member."""


class Humanoid:
    """dm_control's humanoid: stand up, stay upright, then stand still or move at a speed."""

    def __init__(self, batch: Batch, model: mujoco.MjModel, speeds: Float64[np.ndarray, "S"]):
        self._qpos, self._qvel, self._ctrl = (batch.bind(n) for n in ("qpos", "qvel", "ctrl"))
        self._xpos, self._xmat = batch.bind("xpos"), batch.bind("xmat")
        self._velocity = batch.bind("sensordata")[:, _sensors(model, "torso_subtreelinvel")]
        self._torso, self._head = model.body("torso").id, model.body("head").id
        limbs = ("left_hand", "left_foot", "right_hand", "right_foot")
        self._limbs = [model.body(limb).id for limb in limbs]
        self._moves = speeds > 0
        self._speeds = np.where(self._moves, speeds, 1.0)

    def observe(self) -> Float64[np.ndarray, "S o"]:
        """Joint angles, head height, limbs in the torso's frame, torso's vertical, velocities."""
        frame = self._frame()
        limbs = self._xpos[:, self._limbs] - self._xpos[:, self._torso, None]
        parts = [
            self._qpos[:, 7:],
            self._xpos[:, self._head, 2:],
            (limbs @ frame).reshape(len(frame), -1),
            frame[:, 2],
            self._velocity,
            self._qvel,
        ]
        return np.concatenate(parts, axis=1)

    def reward(self) -> Float64[np.ndarray, "S"]:
        """Standing x upright x small control x (not moving, or moving at the target speed)."""
        standing = _bell((1.4 - self._xpos[:, self._head, 2]) / 0.35)
        upright = _ramp((0.9 - self._xmat[:, self._torso, 8]) / 1.9)
        small_control = (4 + np.maximum(1 - self._ctrl**2, 0).mean(axis=1)) / 5
        horizontal = self._velocity[:, :2]
        still = _bell(np.abs(horizontal) / 2).mean(axis=1)
        share = np.sqrt((horizontal**2).sum(axis=1)) / self._speeds
        moving = (5 * _ramp(1 - share) + 1) / 6
        pace = np.where(self._moves, moving, still)
        return np.asarray(standing * upright * small_control * pace)

    def _frame(self) -> Float64[np.ndarray, "S 3 3"]:
        return np.asarray(self._xmat[:, self._torso].reshape(-1, 3, 3))


class Dog:
    """dm_control's dog: stand at height with the weight on the feet, then move at a speed."""

    def __init__(self, batch: Batch, model: mujoco.MjModel, speeds: Float64[np.ndarray, "S"]):
        hinges = model.jnt_type == mujoco.mjtJoint.mjJNT_HINGE
        self._angles, self._rates = model.jnt_qposadr[hinges], model.jnt_dofadr[hinges]
        self._qpos, self._qvel, self._act = (batch.bind(n) for n in ("qpos", "qvel", "act"))
        self._xpos, self._xmat = batch.bind("xpos"), batch.bind("xmat")
        self._sensordata = batch.bind("sensordata")
        self._inertial = _sensors(model, "accelerometer", "velocimeter", "gyro")
        self._feet = _sensors(model, "foot_L", "foot_R", "hand_L", "hand_R")
        self._touch = _sensors(model, "palm_L", "palm_R", "sole_L", "sole_R")
        self._velocity = _sensors(model, "torso_linvel")
        self._torso = model.body("torso").id
        self._heights = [model.body(name).id for name in ("torso", "pelvis")]
        self._uprights = [model.body(name).id for name in ("skull", "torso", "pelvis")]
        self._moves = speeds > 0
        self._speeds = np.where(self._moves, speeds, 1.0)

        default = mujoco.MjData(model)  # at the model's default pose
        mujoco.mj_kinematics(model, default)
        self._stand = 0.9 * default.xpos[self._heights, 2]
        self._weight = -model.opt.gravity[2] * model.body_subtreemass[self._torso]

    def observe(self) -> Float64[np.ndarray, "S o"]:
        """Joints, heights, verticals, velocity, inertial and touch sensors, muscle activation."""
        parts = [
            self._qpos[:, self._angles],
            self._qvel[:, self._rates],
            self._xpos[:, self._heights, 2],
            self._verticals().reshape(len(self._qpos), -1),
            self._forward_frame_velocity(),
            self._sensordata[:, self._inertial],
            self._sensordata[:, self._feet],
            self._sensordata[:, self._touch],
            self._act,
        ]
        return np.concatenate(parts, axis=1)

    def reward(self) -> Float64[np.ndarray, "S"]:
        """Product of torso and pelvis height, three uprights, touch, and the target speed."""
        high = _bell(1 - self._xpos[:, self._heights, 2] / self._stand).prod(axis=1)
        cosine = np.cos(np.deg2rad(30))
        upright = _ramp((cosine - self._xmat[:, self._uprights, 8]) / (cosine + 1)).prod(axis=1)
        carried = self._sensordata[:, self._touch].sum(axis=1) / self._weight
        touch = _ramp(0.1 * (1 - carried))
        share = self._forward_frame_velocity()[:, 0] / self._speeds
        moving = (4 * _ramp(np.maximum(1 - share, share - 2)) + 1) / 5
        pace = np.where(self._moves, moving, 1.0)
        return np.asarray(high * upright * touch * pace)

    def _verticals(self) -> Float64[np.ndarray, "S 3 3"]:
        return np.asarray(self._xmat[:, self._uprights, 6:])

    def _forward_frame_velocity(self) -> Float64[np.ndarray, "S 3"]:
        frame = self._xmat[:, self._torso].reshape(-1, 3, 3)
        return np.asarray((self._sensordata[:, None, self._velocity] @ frame)[:, 0])


def _bell(outside: np.ndarray) -> np.ndarray:
    """1 within the bounds (outside <= 0), then a Gaussian that is 0.1 one margin outside."""
    return np.asarray(np.exp(np.log(0.1) * np.maximum(outside, 0) ** 2))


def _ramp(outside: np.ndarray) -> np.ndarray:
    """1 within the bounds (outside <= 0), then a straight line that is 0 from 1 on."""
    return np.asarray(np.clip(1 - outside, 0, 1))


def _sensors(model: mujoco.MjModel, *names: str) -> slice | list[int]:
    """Where the named sensors' readings lie in `sensordata`."""
    spans = [(model.sensor(name).adr[0], model.sensor(name).dim[0]) for name in names]
    if len(spans) == 1:
        return slice(spans[0][0], sum(spans[0]))  # a view stays live where a copy would not
    return [index for start, size in spans for index in range(start, start + size)]
