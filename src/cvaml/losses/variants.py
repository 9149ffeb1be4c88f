"""The one table of variants: every study, the agent, the command line and the docs read it.

Grammar of the names: `{vaml,cvaml,printed}-{m}-{b}` with optional suffixes `+td` (an ordinary
TD update also trains V), `+kl` (0.1 · KL is added to the model's loss), `+noaux` (the agent's
auxiliary loss is dropped); and the baselines `mle`, `aux-only`, `td3`.
"""

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from jaxtyping import Array, Float

from cvaml.losses._checks import check_count
from cvaml.losses.correction import Correction, check_correction
from cvaml.losses.vaml import expected_vaml_loss, mb_vaml_loss
from cvaml.types import UserError

Study = Literal["tabular", "agent"]

_NAME = re.compile(r"(vaml|cvaml|printed)-(\d+)-(\d+)((?:\+[a-z]+)*)")
_CORRECTIONS: dict[str, Correction] = {"vaml": "none", "cvaml": "unbiased", "printed": "printed"}
_DEFAULT_K = {"vaml": 1, "cvaml": 4, "printed": 4}


@dataclass(frozen=True)
class Variant:
    """How the model and the value are trained; hashable, so it can be a static jit argument."""

    name: str
    """The name in tables, figures and on the command line."""
    loss: Callable[..., Float[Array, ""]] | None = mb_vaml_loss
    """Sampled value-aware loss, called as `mb_vaml_loss` is; None trains the model without one."""
    expected: Callable[..., Float[Array, ""]] | None = expected_vaml_loss
    """Its exact expectation, called as `expected_vaml_loss` is; None where there is none."""
    m: int = 1
    """Model steps before the value is compared."""
    b: int = 0
    """Real rewards before the bootstrap; 0 is IterVAML, 1 or more is MuZero."""
    k: int = 1
    """Independent model trajectories per start state."""
    correction: Correction = "none"
    """Variance correction subtracted from the loss."""
    trains_value: bool = False
    """Whether the gradient of the value-aware loss also reaches V."""
    td: bool = True
    """Whether an ordinary TD update trains V; in the agent TD always does."""
    kl: float = 0.0
    """Weight of KL(P || model) in the tabular studies."""
    aux: bool = True
    """Whether the agent adds its auxiliary latent loss."""
    applies_to: tuple[Study, ...] = ("tabular", "agent")
    """Studies this variant makes sense in."""

    def __post_init__(self) -> None:
        try:
            check_count(f"variant {self.name!r}", "m", self.m, 1)
            check_count(f"variant {self.name!r}", "b", self.b, 0)
            check_correction(f"variant {self.name!r}", self.correction, self.k)
        except ValueError as error:
            raise UserError(str(error)) from None

    @property
    def has_model(self) -> bool:
        """Whether anything trains a model at all."""
        return self.loss is not None or self.aux or self.kl > 0


def variant(name: str, k: int | None = None) -> Variant:
    """The variant of that name.

    Args:
        name: a name of the grammar above, for instance `"cvaml-1-0"` or `"vaml-3-1+td"`.
        k: model samples, if not the default (vaml 1; cvaml and printed 4).

    Returns:
        The frozen variant.

    Raises:
        UserError: the name is not of the grammar, or k does not fit the correction.
    """
    if name in _BASELINES:
        if k not in (None, 1):
            raise UserError(f"variant {name!r} draws no model samples, so k = {k} has no meaning")
        return _BASELINES[name]
    match = _NAME.fullmatch(name)
    if match is None:
        near = difflib.get_close_matches(name, VARIANTS, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise UserError(
            f"unknown variant {name!r}; {hint}allowed are {{vaml,cvaml,printed}}-{{m}}-{{b}} with "
            f"+td, +kl, +noaux, and {', '.join(_BASELINES)}"
        )
    family, m, b = match[1], int(match[2]), int(match[3])
    found = Variant(
        name=f"{family}-{m}-{b}",
        m=m,
        b=b,
        k=_DEFAULT_K[family] if k is None else k,
        correction=_CORRECTIONS[family],
        trains_value=b >= 1,
        td=b == 0,
    )
    for suffix in match[4].split("+")[1:]:
        found = _with_suffix(found, suffix)
    return found


def _with_suffix(base: Variant, suffix: str) -> Variant:
    """The variant with one suffix applied; a suffix that would change nothing is refused."""
    name = f"{base.name}+{suffix}"
    refusals = {
        "td": "b = 0 already learns V by TD" if base.td else "",
        "kl": "+noaux belongs to the agent, +kl to the tabular studies" if not base.aux else "",
        "noaux": "+kl belongs to the tabular studies, +noaux to the agent" if base.kl else "",
    }
    if suffix not in refusals:
        allowed = ", ".join(f"+{known}" for known in refusals)
        raise UserError(f"unknown suffix '+{suffix}' in variant {name!r}; allowed are {allowed}")
    if f"+{suffix}" in base.name:
        raise UserError(f"variant {name!r} repeats '+{suffix}'")
    if refusals[suffix]:
        raise UserError(f"variant {name!r}: {refusals[suffix]}")
    if suffix == "td":
        return replace(base, name=name, td=True)
    if suffix == "kl":
        return replace(base, name=name, kl=0.1, applies_to=("tabular",))
    return replace(base, name=name, aux=False, applies_to=("agent",))


def fit_variant(
    name: str, study: Study, k: int | None = None, deterministic: bool = False
) -> Variant:
    """The variant of that name, if a study can use it.

    Args:
        name: a name of the grammar.
        study: which study asks.
        k: model samples, if not the default.
        deterministic: whether the model is deterministic, which leaves no variance to correct.

    Returns:
        The frozen variant.

    Raises:
        UserError: the variant does not fit; the message lists those that do.
    """
    found = variant(name, k)
    reason = _misfit(found, study, deterministic)
    if reason:
        fit = ", ".join(n for n, v in VARIANTS.items() if not _misfit(v, study, deterministic))
        raise UserError(f"variant {name!r} does not fit: {reason}; fit are: {fit}")
    return found


def _misfit(candidate: Variant, study: Study, deterministic: bool) -> str:
    """Why a variant cannot be used; empty if it can."""
    if study not in candidate.applies_to:
        return (
            f"it is not for the {study} studies" if study == "tabular" else "it is not for agents"
        )
    if deterministic and candidate.correction != "none":
        return "a deterministic model has no sampling variance to correct"
    return ""


_BASELINES = {
    "mle": Variant("mle", loss=None, expected=None, kl=1.0, aux=False, applies_to=("tabular",)),
    "aux-only": Variant("aux-only", loss=None, expected=None, applies_to=("agent",)),
    "td3": Variant("td3", loss=None, expected=None, aux=False, applies_to=("agent",)),
}

VARIANTS: dict[str, Variant] = _BASELINES | {
    name: variant(name)
    for family in ("vaml", "cvaml", "printed")
    for name in (
        f"{family}-1-0",
        f"{family}-1-1",
        f"{family}-1-1+td",
        f"{family}-1-0+kl",
        f"{family}-1-1+kl",
        f"{family}-1-1+td+kl",
        f"{family}-1-0+noaux",
        f"{family}-1-1+noaux",
    )
}
