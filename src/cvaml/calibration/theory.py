"""The paper's propositions and lemmas as a list of computed checks."""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np

from cvaml.calibration.compact import CompactNumbers
from cvaml.calibration.expectation import expectation_gap
from cvaml.calibration.lemmas import lemma_numbers, operator_gap, shrink_slopes
from cvaml.calibration.models import DETERMINISTIC, Start, class_floor
from cvaml.calibration.problems import Problem

LEMMA_SAMPLES = (1, 2, 4, 8)


class Check(NamedTuple):
    """One number that a statement of the paper bounds."""

    statement: str
    """Where the paper says it."""
    quantity: str
    """What was computed."""
    value: float
    """The result."""
    relation: Literal["<", ">"]
    """On which side of the bound it must lie."""
    bound: float
    """The bound."""

    @property
    def holds(self) -> bool:
        """Whether it lies there."""
        return self.value < self.bound if self.relation == "<" else self.value > self.bound


def finite_checks(problems: Sequence[Problem], generator: np.random.Generator) -> Iterator[Check]:
    """Proposition 1 and the lemmas, over stochastic problems.

    Args:
        problems: the problems; one start state of each is used for the lemmas.
        generator: draws the distributions of lemma 3; the call advances it.
    """
    gaps = [operator_gap(problem) for problem in problems]
    equal, scaled = (float(np.max(column)) for column in zip(*gaps, strict=True))
    yield Check("Proposition 1", "max |T_P V - T_p̂ V| at zero loss", equal, "<", 1e-10)
    yield Check("Proposition 1", "max ||T_P V - T_p̂ V| - γ√loss|", scaled, "<", 1e-10)
    starts = [Start(p.kernel[0], p.values, p.values) for p in problems]
    for k in LEMMA_SAMPLES:
        found = [lemma_numbers(start, k, generator) for start in starts]
        premise = [numbers for numbers in found if numbers.condition]
        margin = min(numbers.margin for numbers in found)
        yield Check("Lemma 3", f"min g(p') - g(p*), k = {k}", margin, ">", -1e-12)
        if not premise:
            continue
        share = f"k = {k}, premise met by {len(premise)} of {len(found)}"
        gain = min(numbers.gain for numbers in premise)
        yield Check("Lemma 4", f"min g(p*) - g(q), {share}", gain, ">", 0)
        excess = min(numbers.excess for numbers in premise)
        yield Check("Lemma 5", f"min regret of argmin g, {share}", excess, ">", 0)
    slopes = [shrink_slopes(p.kernel[0], p.targets(1)) for p in problems]
    printed = max(abs(s.printed + s.variance) for s in slopes)
    loss = max(abs(s.loss + 2 * s.variance) for s in slopes)
    yield Check("Lemma before Prop. 2.3", "max |slope + Var|", printed, "<", 1e-10)
    yield Check("Lemma before Prop. 2.3", "max |slope of the loss + 2 Var|", loss, "<", 1e-10)


def compact_checks(numbers: Sequence[CompactNumbers]) -> Iterator[Check]:
    """Proposition 3.1, over compact problems, and a finite space where it fails."""
    gap = max(found.gap for found in numbers)
    yield Check("Proposition 3.1", "max |V(f*(φ(x))) - E V|", gap, "<", 1e-6)
    loss = max(float(np.abs(found.loss_gap).max()) for found in numbers)
    yield Check("Proposition 3.1", "max |loss at f* - its floor|, two ρ", loss, "<", 1e-10)
    twice = min(found.two_step_gap for found in numbers)
    yield Check("Proposition 3.1", "min over problems, f* twice: max error", twice, ">", 1e-3)
    coin = Start(np.array([0.5, 0.5]), np.array([0.0, 1.0]), np.array([0.0, 1.0]))
    floor = class_floor(coin, DETERMINISTIC)
    yield Check("Proposition 3.1", "least deterministic loss on 2 states", floor, ">", 0.2)


def auxiliary_checks(generator: np.random.Generator, draws: int = 100) -> Iterator[Check]:
    """The auxiliary (expectation) model: affine, quadratic and odd value functions."""
    affine, square = [], []
    for _ in range(draws):
        latents = generator.normal(size=(7, 4))
        probabilities = generator.dirichlet(np.ones(7))
        slope, offset = generator.normal(size=4), float(generator.normal())
        plane = lambda z, w=slope, c=offset: z @ w + c  # noqa: E731
        affine.append(abs(expectation_gap(latents, probabilities, plane)))
        line = latents[:, :1]
        variance = probabilities @ (line[:, 0] - probabilities @ line[:, 0]) ** 2
        gap = expectation_gap(line, probabilities, lambda z: z[..., 0] ** 2)
        square.append(float(abs(gap - variance)))
    yield Check("Equation 7", "max |gap|, V affine", max(affine), "<", 1e-12)
    yield Check("Equation 7", "max |gap - Var z|, V = z²", max(square), "<", 1e-12)
    symmetric = np.array([[-1.0], [0.0], [1.0]])
    cubic = lambda z: z[..., 0] ** 3  # noqa: E731
    even = abs(expectation_gap(symmetric, np.array([0.3, 0.4, 0.3]), cubic))
    skew = abs(expectation_gap(symmetric, np.array([0.6, 0.3, 0.1]), cubic))
    yield Check("Equation 7", "|gap|, V = z³, z symmetric", even, "<", 1e-12)
    yield Check("Equation 7", "|gap|, V = z³, z skewed", skew, ">", 0.1)
