"""The sketch of the (m,b) loss (the paper's Figure 1), drawn by code as SVG."""

_INK = "var(--ink, #14140f)"
_SOFT = "var(--soft, #52514e)"
_MODEL = "var(--model, #c8640a)"
_WORLD = "var(--world, #145a96)"
_FONT = "font-family=\"Georgia, 'Times New Roman', serif\""

_REAL_Y, _MODEL_Y = 190, 70
_STEP = 118
_LEFT = 60


def loss_sketch(m: int = 2, b: int = 2) -> str:
    """An SVG image: m model steps above, m + b environment steps below, the loss between.

    Args:
        m: model steps drawn, at least 1.
        b: steps of the bootstrap drawn, at least 0.

    Returns:
        SVG markup; its colours follow the page's variables and have defaults of their own.
    """
    if m < 1 or b < 0:
        raise ValueError(f"m must be at least 1 and b at least 0, got m = {m}, b = {b}")
    width = max(_place(m + b) + 60, _place(m) + 300)
    parts = [_arrowheads()]
    for i in range(m + b):
        parts.append(_arrow(_place(i), _REAL_Y, _place(i + 1), _REAL_Y, "world", "P"))
    parts.append(_arrow(_place(0), _REAL_Y, _place(1), _MODEL_Y, "model", "p̂"))
    parts += [
        _arrow(_place(i), _MODEL_Y, _place(i + 1), _MODEL_Y, "model", "p̂") for i in range(1, m)
    ]
    parts += [_node(_place(i), _REAL_Y, "x", i, m, b, _WORLD) for i in range(m + b + 1)]
    parts += [_node(_place(i), _MODEL_Y, "x̂", i, m, b, _MODEL) for i in range(1, m + 1)]
    parts.append(_bracket(_place(m), _place(m + b), b))
    parts.append(_terms(_place(m), b))
    title = f"Sketch of the (m,b) loss with m = {m} and b = {b}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 20 {width} 250" role="img" '
        f'aria-label="{title}" {_FONT} font-size="17"><title>{title}</title>{"".join(parts)}</svg>'
    )


def _place(i: int) -> int:
    return _LEFT + i * _STEP


def _arrowheads() -> str:
    heads = "".join(
        f'<marker id="head-{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        f'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="{colour}"/></marker>'
        for name, colour in (("model", _MODEL), ("world", _WORLD))
    )
    return f"<defs>{heads}</defs>"


def _arrow(x1: int, y1: int, x2: int, y2: int, kind: str, label: str) -> str:
    colour = _MODEL if kind == "model" else _WORLD
    length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
    dx, dy = (x2 - x1) / length, (y2 - y1) / length
    line = (
        f'<line x1="{x1 + 27 * dx:.1f}" y1="{y1 + 27 * dy:.1f}" x2="{x2 - 29 * dx:.1f}" '
        f'y2="{y2 - 29 * dy:.1f}" stroke="{colour}" stroke-width="1.8" '
        f'marker-end="url(#head-{kind})"/>'
    )
    shift_x, shift_y = (-12, -4) if y1 != y2 else (0, -9)
    return line + _text((x1 + x2) / 2 + shift_x, (y1 + y2) / 2 + shift_y, label, colour, 15)


def _power(i: int, m: int, b: int) -> str:
    """The superscript of the i-th state: symbols where the formula names them."""
    if i == m:
        return "(m)"
    if i == m + b:
        return "(m+b)"
    return f"({i})"


def _node(x: int, y: int, letter: str, i: int, m: int, b: int, colour: str) -> str:
    power = "" if i == 0 else f'<tspan dy="-6" font-size="11">{_power(i, m, b)}</tspan>'
    return (
        f'<circle cx="{x}" cy="{y}" r="25" fill="var(--card, #fff)" stroke="{colour}" '
        f'stroke-width="1.8"/><text x="{x}" y="{y + 5}" text-anchor="middle" fill="{_INK}" '
        f'font-style="italic">{letter}{power}</text>'
    )


def _bracket(x1: int, x2: int, b: int) -> str:
    y = _REAL_Y + 38
    if b == 0:
        return ""
    path = f"M{x1 - 20} {y}v8H{x2 + 20}v-8"
    label = "b rewards, then the value: " if b > 1 else "one reward, then the value: "
    return f'<path d="{path}" fill="none" stroke="{_WORLD}" stroke-width="1.4"/>' + _text(
        (x1 + x2) / 2, y + 30, label + "[Tᵇ V](x⁽ᵐ⁾)", _WORLD, 15
    )


def _terms(x: int, b: int) -> str:
    """The loss itself, beside the model's last state, and the gap it measures."""
    gap = (
        f'<path d="M{x} {_MODEL_Y + 27}V{_REAL_Y - 27}" stroke="{_INK}" stroke-width="1.6" '
        f'stroke-dasharray="3 4"/>'
    )
    target = "[Tᵇ V](x⁽ᵐ⁾)" if b else "V(x⁽ᵐ⁾)"
    left = x + 48
    formula = (
        f'<text x="{left}" y="{_MODEL_Y + 6}" fill="{_INK}">loss = | <tspan fill="{_MODEL}">'
        f'V(x̂⁽ᵐ⁾)</tspan> − <tspan fill="{_WORLD}">{target}</tspan> |²</text>'
    )
    names = _text(left + 84, _MODEL_Y + 28, "model", _MODEL, 13) + _text(
        left + 185, _MODEL_Y + 28, "environment", _WORLD, 13
    )
    return gap + formula + names


def _text(
    x: float | int, y: float | int, text: str, colour: str, size: int, anchor: str = "middle"
) -> str:
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" fill="{colour}" font-size="{size}" '
        f'text-anchor="{anchor}">{text}</text>'
    )
