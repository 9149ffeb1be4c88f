"""NumPy generators as plain arrays, and the noise that a member adds to its actions."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float, Shaped, UInt64

_WORD = (1 << 64) - 1


def generator_words(generator: np.random.Generator) -> UInt64[np.ndarray, "6"]:
    """The whole state of a PCG64 generator as six words, for a checkpoint."""
    state = generator.bit_generator.state
    position, increment = state["state"]["state"], state["state"]["inc"]
    words = [position >> 64, position & _WORD, increment >> 64, increment & _WORD]
    return np.array([*words, state["has_uint32"], state["uinteger"]], np.uint64)


def set_generator_words(generator: np.random.Generator, words: Shaped[np.ndarray, "6"]) -> None:
    """Puts a PCG64 generator back to where `generator_words` found it."""
    high, low, inc_high, inc_low, has_uint32, uinteger = (int(word) for word in words)
    generator.bit_generator.state = {
        "bit_generator": "PCG64",
        "state": {"state": high << 64 | low, "inc": inc_high << 64 | inc_low},
        "has_uint32": has_uint32,
        "uinteger": uinteger,
    }


class LegacyGenerators:
    """One Mersenne Twister per member, kept as arrays: dm_control draws from this kind only."""

    def __init__(self, seeds: Sequence[int]) -> None:
        self.keys = np.zeros((len(seeds), 624), np.uint32)
        self.positions = np.zeros((len(seeds), 2), np.int64)
        self.gaussians = np.zeros(len(seeds))
        for member, seed in enumerate(seeds):
            self.take_back(member, np.random.RandomState(seed))

    def lend(self, member: int, to: np.random.RandomState) -> None:
        """Puts the member's state into `to`."""
        position, has_gauss = self.positions[member]
        to.set_state(("MT19937", self.keys[member], position, has_gauss, self.gaussians[member]))

    def take_back(self, member: int, lent: np.random.RandomState) -> None:
        """Keeps what `lent` has become after drawing."""
        state = lent.get_state(legacy=False)
        self.keys[member] = state["state"]["key"]
        self.positions[member] = state["state"]["pos"], state["has_gauss"]
        self.gaussians[member] = state["gauss"]

    def state(self) -> dict[str, np.ndarray]:
        """All members' generators as arrays."""
        return {
            "reset/key": self.keys.copy(),
            "reset/position": self.positions.copy(),
            "reset/gaussian": self.gaussians.copy(),
        }

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continues from `state`."""
        self.keys[:] = state["reset/key"]
        self.positions[:] = state["reset/position"]
        self.gaussians[:] = state["reset/gaussian"]


class ActionNoise:
    """Gaussian noise on actions: the simulators are deterministic, the theory is not about that."""

    def __init__(self, seeds: Sequence[int], scale: float) -> None:
        # A stream of its own: the noise must not move with how many numbers a reset draws.
        self.generators = [np.random.default_rng([seed, 1]) for seed in seeds]
        self.scale = scale

    def __call__(self, actions: Shaped[np.ndarray, "S a"]) -> Float[np.ndarray, "S a"]:
        """The actions as they are applied: with noise, then clipped to [-1, 1]."""
        noisy = np.asarray(actions, np.float64)
        if self.scale > 0:
            draws = [generator.standard_normal(noisy.shape[1]) for generator in self.generators]
            noisy = noisy + self.scale * np.stack(draws)
        return np.clip(noisy, -1.0, 1.0)

    def state(self) -> dict[str, np.ndarray]:
        """All members' generators as arrays."""
        return {"action_noise": np.stack([generator_words(g) for g in self.generators])}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continues from `state`."""
        for generator, words in zip(self.generators, state["action_noise"], strict=True):
            set_generator_words(generator, words)
