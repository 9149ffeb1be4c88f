"""The report as one HTML file that needs no network and no server."""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from string import Template

from cvaml.reports.charts import Chart, Section
from cvaml.reports.sketch import loss_sketch

_SCRIPTS = ("drawing.js", "lines.js", "bars.js", "charts.js", "page.js")


def render_page(
    title: str,
    lead: str,
    facts: Mapping[str, str | int],
    sections: Sequence[Section],
    looks: Mapping[str, tuple[int, int]],
    files: Mapping[str, Sequence[str]],
    papers: Mapping[str, Sequence[str]],
    footer: str = "",
) -> str:
    """The page's HTML.

    Everything in the arguments is text, never markup: what is put into the HTML is escaped, the
    rest travels as JSON and reaches the document as text nodes. The page's policy allows its own
    script, known by its hash, and nothing else.

    Args:
        title: the heading.
        lead: one sentence under it.
        facts: a few numbers with their names, for the top of the page.
        sections: what to show.
        looks: name -> (colour slot, dash).
        files: chart key -> paths of its printed figures, relative to the page.
        papers: section key -> paths of the figure in the paper's layout.
        footer: the last line.

    Returns:
        A complete HTML document.
    """
    script = "".join(_asset(name) for name in _SCRIPTS)
    data = {"sections": [_section(one, files, papers) for one in sections], "looks": looks}
    return Template(_asset("page.html")).substitute(
        title=escape(title),
        lead=escape(lead),
        facts="".join(
            f"<div><dt>{escape(name)}</dt><dd>{escape(str(value))}</dd></div>"
            for name, value in facts.items()
        ),
        footer=escape(footer),
        sketch=loss_sketch(),
        style=_asset("page.css"),
        data=script_json(data),
        script=script,
        script_hash=_hash(script),
    )


def script_json(data: object) -> str:
    """JSON that cannot end the script element around it, whatever text it holds."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _section(
    section: Section, files: Mapping[str, Sequence[str]], papers: Mapping[str, Sequence[str]]
) -> dict[str, object]:
    found = section.to_json()
    if papers.get(section.key):
        found["paper"] = list(papers[section.key])
    for item, built in zip(section.items, found["items"], strict=True):
        if isinstance(item, Chart) and item.key in files:
            built["files"] = list(files[item.key])
    return found


def _asset(name: str) -> str:
    return resources.files("cvaml.reports").joinpath("assets", name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
