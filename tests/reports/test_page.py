"""The page as text: escaping, policy, colours, the sketch, printed figures."""

import json
import math
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from fake_runs import agent_run, tabular_run

from cvaml.reports.build import brief_table, build_report, report_sections, slug
from cvaml.reports.charts import Chart, Panel, Section, Series, Settings, Table, View
from cvaml.reports.looks import PALETTE, assign_looks
from cvaml.reports.page import render_page, script_json
from cvaml.reports.reading import read_runs
from cvaml.reports.sketch import loss_sketch
from cvaml.types import UserError

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\u2028"


def evil_page() -> str:
    series = Series(EVIL, [0.0, 1.0], [1.0, math.nan], note=EVIL)
    chart = Chart("key", EVIL, EVIL, [View(EVIL, [Panel(EVIL, [series])], EVIL, EVIL)])
    table = Table("t", EVIL, EVIL, [EVIL], [[EVIL]])
    settings = Settings("c", EVIL, EVIL, {EVIL: [EVIL, math.inf]})
    section = Section("s", EVIL, EVIL, [chart, table, settings])
    return render_page(EVIL, EVIL, {EVIL: EVIL}, [section], {EVIL: (0, 0)}, {}, {}, EVIL)


def test_no_text_becomes_markup():
    page = evil_page()
    assert "<script>alert" not in page
    assert "<img" not in page
    assert len(re.findall(r"</script>", page)) == 2  # of the data and of the page's own script


def test_text_survives_escaping():
    text = re.search(r'id="data">(.*?)</script>', evil_page(), re.S)[1]
    data = json.loads(text)
    series = data["sections"][0]["items"][0]["views"][0]["panels"][0]["series"][0]
    assert series["name"] == EVIL
    assert series["y"] == [1, None]
    assert data["sections"][0]["items"][2]["values"] == {EVIL: [EVIL, "inf"]}


def test_script_json_has_no_angle_brackets():
    assert not set("<>&") & set(script_json({"a": EVIL}))


def test_page_asks_nothing_of_the_network():
    page = evil_page()
    assert "default-src 'none'" in page
    assert not re.findall(r"""(?:src|href)=["']?(?:https?:)?//""", page)
    assert "@import" not in page


def test_the_policy_names_the_hash_of_the_script():
    import base64
    import hashlib

    page = evil_page()
    script = re.search(r"<script>(.*)</script>\n</body>", page, re.S)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page


def test_variants_keep_their_colour_whatever_else_is_shown():
    alone = assign_looks(["vaml-1-1"])
    among = assign_looks(["x", "y", "cvaml-1-0+noaux", "vaml-1-1", "cvaml-1-0", "vaml-1-1"])
    assert alone["vaml-1-1"] == among["vaml-1-1"]
    assert among["cvaml-1-0"] == (0, 0)
    assert among["cvaml-1-0+noaux"] == (0, 1)
    assert len({among["x"][0], among["y"][0], 0, among["vaml-1-1"][0]}) == 4


def test_many_names_get_different_looks():
    looks = assign_looks([f"name {i}" for i in range(4 * len(PALETTE))])
    assert len(set(looks.values())) == 4 * len(PALETTE)


@pytest.mark.parametrize(("m", "b"), [(1, 0), (1, 1), (2, 2), (3, 0)])
def test_sketch_has_a_circle_per_state(m, b):
    root = ElementTree.fromstring(loss_sketch(m, b))
    circles = root.findall(".//{http://www.w3.org/2000/svg}circle")
    assert len(circles) == (m + b + 1) + m
    text = "".join(root.itertext())
    assert ("[Tᵇ V]" in text) == (b > 0)


def test_sketch_refuses_what_it_cannot_draw():
    with pytest.raises(ValueError, match="m must be at least 1"):
        loss_sketch(0, 1)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    root = tmp_path_factory.mktemp("report")
    agent_run(root / "a", seeds=2, tasks=("dog-run",))
    tabular_run(root / "g", temperatures=(1.0,))
    tabular_run(root / "h", temperatures=(1.0,))
    runs = read_runs([root / "a", root / "g", root / "h"])
    claims = "| # | verdict |\n|---|---|\n| C1 | holds |\n"
    return build_report(runs, root / "out", np.random.default_rng(0), claims)


def test_report_writes_page_and_figures(report):
    assert report.page.stat().st_size > 20_000
    names = {path.name for path in report.figures}
    assert "loss-sketch.svg" in names
    assert {"tasks.png", "tasks.pdf", "garnet-1-rank.png", "garnet-2-rank.pdf"} <= names
    assert all(path.stat().st_size > 1000 for path in report.figures)


def test_report_has_its_sections(report):
    assert [section.title for section in report.sections] == [
        "Continuous control",
        "Garnet problems: g",
        "Garnet problems: h",
        "The paper's claims",
        "Configurations",
    ]


def test_the_same_runs_make_the_same_sections(report):
    root = report.page.parent.parent
    runs = read_runs([root / "a", root / "g", root / "h"])
    claims = "| # | verdict |\n|---|---|\n| C1 | holds |\n"
    again = report_sections(runs, np.random.default_rng(0), claims)
    assert [one.to_json() for one in again] == [one.to_json() for one in report.sections]


def test_the_short_table_leaves_out_what_never_varies(report):
    lines = brief_table(report.sections[1]).splitlines()
    assert lines[0].split() == ["variant", "rank", "mean", "median"]
    assert lines[1].startswith("cvaml-1-0  2     1e-06 [8e-07, 1.3e-06]")


def test_the_short_table_sends_no_control_characters():
    table = Table("t", "", "", ["a", "b"], [["\x1b[31mred", 1], ["x", 2]])
    assert "\x1b" not in brief_table(Section("s", "", "", [table]))


def test_nothing_to_show_is_said(tmp_path):
    (run,) = read_runs([agent_run(tmp_path / "a")])
    run.metrics["metric"] = "loss"
    with pytest.raises(UserError, match="nothing to show"):
        report_sections([run], np.random.default_rng(0))


def test_anchors_and_file_names_are_tame():
    assert slug("../../Évil <b>") == "vil-b"
    assert slug("///") == "study"
