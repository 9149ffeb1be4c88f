"""Floating-point operations of a program, counted from its own description.

Only matrix products count: they are what a device's matrix rate can be held against. Compilers
report less than that where products become library calls, so the trace is counted instead.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np


def count_flops(function: Callable[..., Any], *arguments: Any) -> float:
    """Multiplications and additions of all matrix products in one call.

    Args:
        function: traceable by JAX.
        arguments: its arguments, or their shapes.

    Returns:
        The number of operations; loops with a fixed trip count are multiplied out.
    """
    return _of_jaxpr(jax.make_jaxpr(function)(*arguments).jaxpr)


def _of_jaxpr(jaxpr: Any) -> float:
    total = 0.0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            total += _of_product(equation)
            continue
        times = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
        inner = [_of_jaxpr(sub) for sub in _inner(equation.params)]
        if equation.primitive.name == "cond":
            inner = [max(inner, default=0.0)]
        total += times * sum(inner)
    return total


def _of_product(equation: Any) -> float:
    """Two operations for every output element and contracted index."""
    (contracted, _), _ = equation.params["dimension_numbers"]
    left = equation.invars[0].aval.shape
    depth = float(np.prod([left[axis] for axis in contracted], initial=1))
    return 2 * depth * float(np.prod(equation.outvars[0].aval.shape, initial=1))


def _inner(parameters: dict[str, Any]) -> list[Any]:
    """The programs inside an equation: bodies of loops, branches, nested jits."""
    found = []
    for value in parameters.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            item = getattr(item, "jaxpr", item)
            if hasattr(item, "eqns"):
                found.append(item)
    return found
