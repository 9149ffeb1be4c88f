"""The page in a real browser: nothing fails, everything answers, names stay names."""

from pathlib import Path

import numpy as np
import pytest
from browser import Browser, find_chromium
from fake_runs import SEVEN, agent_run, tabular_run

from cvaml.reports.build import build_report
from cvaml.reports.reading import read_runs

EVIL = "<img src=x onerror=document.title='owned'><script>document.title='owned'</script>"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_chromium() is None, reason="needs the browser chromium"),
]


def build(root: Path, *runs: Path) -> Path:
    claims = "| # | claim | verdict |\n|---|---|---|\n| C2 | a `b` | holds |\n"
    claims += f"| C10 | {EVIL} | does not hold |\n"
    return build_report(read_runs(list(runs)), root / "out", np.random.default_rng(0), claims).page


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    root = tmp_path_factory.mktemp("page")
    runs = [
        agent_run(root / "a", "cvaml-1-0", tasks=SEVEN, seeds=2),
        agent_run(root / "b", "vaml-1-0", tasks=SEVEN, seeds=2),
        agent_run(root / "c", EVIL, tasks=(EVIL, "dog-run"), seeds=1, settings={EVIL: EVIL}),
        tabular_run(root / "g"),
        tabular_run(root / "d", EVIL, variants=(EVIL, "mle"), iterations=(1, 2, 3)),
    ]
    return build(root, *runs)


@pytest.fixture
def browser(page):
    with Browser() as one:
        one.open(page)
        yield one
        assert one.errors == []


def test_the_page_loads_itself_and_nothing_else(browser, page):
    assert browser.requests == [page.resolve().as_uri()]
    assert browser.run("document.querySelectorAll('section').length") >= 5


def test_names_stay_names(browser):
    browser.run("dispatchEvent(new Event('beforeprint'))")
    assert browser.run("document.title") != "owned"
    assert browser.run("document.querySelectorAll('main img, main script').length") == 0
    text = browser.run("document.body.textContent")
    assert text.count("onerror=document.title") > 10


PATHS = "[...document.querySelectorAll('#tasks path.mark.main')].length"


def shown(browser, key="tasks"):
    browser.run(f"document.getElementById('{key}').scrollIntoView({{behavior: 'instant'}})")
    browser.run("new Promise(r => setTimeout(r, 200))")


def test_toggling_a_variant_changes_the_plot(browser):
    shown(browser)
    before = browser.run(PATHS)
    button = "[...document.querySelectorAll('#tasks .key')].find(k => k.textContent === 'vaml-1-0')"
    browser.run(f"{button}.click()")
    assert browser.run(PATHS) == before - 7
    assert browser.run(f"{button}.getAttribute('aria-pressed')") == "false"
    browser.run(f"{button}.click()")
    assert browser.run(PATHS) == before


def test_shift_click_shows_one_variant_alone_and_all_again(browser):
    shown(browser)
    before = browser.run(PATHS)
    click = (
        "[...document.querySelectorAll('#tasks .key')].find(k => k.textContent === 'cvaml-1-0')"
        ".dispatchEvent(new MouseEvent('click', {shiftKey: true, bubbles: true}))"
    )
    browser.run(click)
    assert browser.run(PATHS) == 7
    browser.run(click)
    assert browser.run(PATHS) == before


@pytest.mark.parametrize("label", ["log x", "log y"])
def test_log_axes_move_the_curves(browser, label):
    shown(browser)
    curve = "document.querySelector('#tasks path.mark.main').getAttribute('d')"
    before = browser.run(curve)
    button = (
        f"[...document.querySelectorAll('#tasks .switch')].find(b => b.textContent === '{label}')"
    )
    browser.run(f"{button}.click()")
    assert browser.run(curve) != before


def test_single_runs_and_published_methods_can_be_switched(browser):
    shown(browser)
    count = "document.querySelectorAll('#tasks path.mark.{}').length"
    assert browser.run(count.format("run")) == 0
    assert browser.run(count.format("published")) > 7
    for label in ("single runs", "published methods"):
        browser.run(
            "[...document.querySelectorAll('#tasks .switch')]"
            f".find(b => b.textContent === '{label}').click()"
        )
    assert browser.run(count.format("run")) == 30
    assert browser.run(count.format("published")) == 0


def test_the_pointer_reads_values(browser):
    shown(browser, "sample-efficiency")
    area = browser.run(
        "(() => { const panel = document.querySelector('#sample-efficiency .panel');"
        " const r = panel.getBoundingClientRect();"
        " return [r.left + r.width * 0.5, r.top + r.height * 0.5]; })()"
    )
    browser.move(*area)
    browser.run("new Promise(r => setTimeout(r, 150))")
    tip = browser.run("document.querySelector('#sample-efficiency .tip').textContent")
    assert "environment steps" in tip
    assert "cvaml-1-0" in tip
    assert browser.run("document.querySelector('#sample-efficiency .tip').hidden") is False


@pytest.mark.parametrize("place", [0.2, 0.8])
@pytest.mark.parametrize("which", [0, 3])
def test_what_the_pointer_reads_stays_on_the_screen(browser, place, which):
    shown(browser)
    x, y = browser.run(
        f"(() => {{ const panel = document.querySelectorAll('#tasks .panel')[{which}];"
        " const r = panel.getBoundingClientRect();"
        f" return [r.left + r.width * {place}, r.top + r.height * 0.5]; }})()"
    )
    browser.move(x, y)
    browser.run("new Promise(r => setTimeout(r, 150))")
    left, right = browser.run(
        "(() => { const tip = [...document.querySelectorAll('#tasks .tip')].find(t => !t.hidden);"
        " const r = tip.getBoundingClientRect(); return [r.left, r.right]; })()"
    )
    assert left >= 0
    assert right <= 1280


def test_the_keyboard_reads_values(browser):
    shown(browser, "sample-efficiency")
    browser.run("document.querySelector('#sample-efficiency .panel').focus()")
    tip = "document.querySelector('#sample-efficiency .tip .at').textContent"
    browser.key("ArrowRight")
    assert browser.run(tip) == "environment steps 0"
    browser.key("End")
    assert browser.run(tip) == "environment steps 200\u202f000"
    browser.key("Escape")
    assert browser.run("document.querySelector('#sample-efficiency .tip').hidden") is True


def test_every_control_can_be_reached_with_the_keyboard(browser):
    loose = browser.run(
        "[...document.querySelectorAll('.key, .switch, th button, select, summary')]"
        ".filter(e => e.tabIndex < 0).length"
    )
    assert loose == 0
    browser.run("document.querySelector('.key').focus()")
    assert browser.run("getComputedStyle(document.activeElement).outlineStyle") != "inherit"


def test_another_view_redraws(browser):
    shown(browser, "sample-efficiency")
    label = "document.querySelector('#sample-efficiency .axes .label + .label').textContent"
    assert browser.run(label) == "mean return"
    browser.run(
        "(() => { const s = document.querySelector('#sample-efficiency select'); s.value = 1;"
        " s.dispatchEvent(new Event('change')); })()"
    )
    assert browser.run(label) == "IQM return"


def column(browser, key, index):
    return browser.run(
        f"[...document.querySelectorAll('#{key} tbody tr')]"
        f".map(r => r.children[{index}].textContent)"
    )


def test_tables_sort_by_number_and_by_text(browser):
    click = "document.querySelectorAll('#garnet-1-table th button')[{}].click()"
    head = browser.run(
        "[...document.querySelectorAll('#garnet-1-table th')].map(h => h.textContent)"
    )
    rank = head.index("rank")
    browser.run(click.format(rank))
    numbers = [int(cell) for cell in column(browser, "garnet-1-table", rank)]
    assert numbers == sorted(numbers, reverse=True)
    browser.run(click.format(rank))
    assert [int(cell) for cell in column(browser, "garnet-1-table", rank)] == sorted(numbers)
    browser.run("document.querySelector('#claims-table th button').click()")
    assert column(browser, "claims-table", 0) == ["C2", "C10"]


def test_tables_can_be_filtered(browser):
    browser.run(
        "(() => { const s = document.querySelector('#garnet-1-table input');"
        " s.value = 'MLE 20'; s.dispatchEvent(new Event('input')); })()"
    )
    assert column(browser, "garnet-1-table", 0) == ["mle", "mle"]


def test_verdicts_are_marked(browser):
    marks = browser.run("[...document.querySelectorAll('.verdict')].map(v => v.className)")
    assert marks == ["verdict yes", "verdict no"]
    said = {
        "holds": "yes",
        "**holds**": "yes",
        "does not hold": "no",
        "not enough runs": "open",
        "holds under a condition: y": "open",
        "bias holds; worse with m: does not hold": "open",
        "calibrated": "yes",
        "uncalibrated": "no",
    }
    assert {text: browser.run(f"verdictClass('{text}')") for text in said} == said


@pytest.mark.parametrize("dark", [False, True])
def test_text_is_readable_in_both_schemes(browser, page, dark):
    browser.dark(dark)
    browser.open(page)
    contrast = """(() => {
      const probe = (color) => { const c = document.createElement('canvas').getContext('2d');
        c.fillStyle = color; c.fillRect(0, 0, 1, 1); return [...c.getImageData(0, 0, 1, 1).data]; };
      const light = (rgb) => { const [r, g, b] = rgb.slice(0, 3).map(v => { v /= 255;
        return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
      const style = getComputedStyle(document.documentElement);
      const get = (name) => light(probe(style.getPropertyValue(name)));
      const card = get('--card');
      return ['--ink', '--soft', '--muted', '--accent'].map((name) => { const text = get(name);
        return (Math.max(text, card) + 0.05) / (Math.min(text, card) + 0.05); });
    })()"""
    assert min(browser.run(contrast)) >= 4.5


def test_a_phone_needs_no_sideways_scrolling(browser, page):
    browser.resize(390, 844, phone=True)
    browser.open(page)
    browser.run("dispatchEvent(new Event('beforeprint'))")
    assert browser.run("document.documentElement.scrollWidth") <= 390
    small = browser.run(
        "[...document.querySelectorAll('.key, .switch, select')].filter("
        "e => e.getBoundingClientRect().height < 38).length"
    )
    assert small == 0


def test_a_thousand_curves_open_within_two_seconds(tmp_path):
    steps = tuple(range(0, 1_000_001, 10_000))
    runs = [
        agent_run(tmp_path / variant, variant, tasks=SEVEN, seeds=30, steps=steps)
        for variant in ("cvaml-1-0", "vaml-1-0", "cvaml-1-1", "vaml-1-1", "aux-only")
    ]
    page = build(tmp_path, *runs)
    with Browser() as one:
        seconds = min(one.open(page) for _ in range(3))
        drawn = one.run(
            """(() => { const start = performance.now();
              [...document.querySelectorAll('#tasks .switch')].find(
                b => b.textContent === 'single runs').click();
              return [document.querySelectorAll('#tasks path.mark.run').length,
                performance.now() - start]; })()"""
        )
        assert one.errors == []
    assert drawn[0] == 5 * 7 * 30
    assert seconds < 2.0
    assert drawn[1] < 2000
