"""One vector interface to environments; knows no algorithm."""

from cvaml.envs.vector import State, Step, VectorEnv, make_env

__all__ = ["State", "Step", "VectorEnv", "make_env"]
