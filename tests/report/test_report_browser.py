"""The report in a real browser. Needs Chromium on the PATH: `make browser` installs it."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from quantail.report import write_pdf, write_report
from quantail.report.pdf import find_browser
from quantail.report.style import DARK, LIGHT
from tests.report.real_run import write_real_run

pytestmark = pytest.mark.verify

FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
)  # fmt: skip
DESKTOP, PHONE = 1440, 360


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = find_browser()
    if path is None:
        reason = "Chromium is not installed; `make browser` installs it"
        if os.environ.get("QUANTAIL_BROWSER") == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(write_real_run(tmp_path_factory.mktemp("runs") / "run"))


class Visit:
    """A page that was opened, and everything that went wrong with it."""

    def __init__(self, page: Page, report: Path) -> None:
        self.page = page
        self.troubles: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.troubles.append(message.text))
        page.on("pageerror", lambda error: self.troubles.append(str(error)))
        page.on("dialog", lambda dialog: self.troubles.append(dialog.message))
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(report.as_uri())
        page.wait_for_selector("html[data-drawn]", state="attached", timeout=120_000)


def visit(browser: Browser, report: Path, width: int, scheme: str) -> Visit:
    context = browser.new_context(
        viewport={"width": width, "height": 800},
        color_scheme=scheme,
        has_touch=width == PHONE,
        offline=True,
    )
    return Visit(context.new_page(), report)


def wait_until(page: Page, expression: str) -> None:
    """Ask again and again; the page's own policy forbids a driver to plant a waiting script."""
    for _ in range(200):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"never came true: {expression}")


def rgb(color: str) -> str:
    return f"rgb({', '.join(str(int(color[i : i + 2], 16)) for i in (1, 3, 5))})"


AGENT_LINE = """document.querySelector('#equity .scatterlayer .trace path.js-line')
    .style.stroke"""


@pytest.mark.parametrize("width", [DESKTOP, PHONE])
@pytest.mark.parametrize(("scheme", "theme"), [("light", LIGHT), ("dark", DARK)])
def test_the_page_is_whole_on_every_screen(browser, report, tmp_path, width, scheme, theme):
    visited = visit(browser, report, width, scheme)
    page = visited.page
    assert visited.troubles == []
    assert {url for url in visited.requests if not url.startswith("data:")} == {report.as_uri()}
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    drawn = page.evaluate(
        """[...document.querySelectorAll('.plot')].map((plot) => [
            plot.id, plot.querySelectorAll('.main-svg').length,
            plot.querySelectorAll('path.js-line, path.point, .points path, .errorbar').length,
            plot.getBoundingClientRect().width])"""
    )
    assert {"equity", "positions-plot", "cost-plot", "law-plot", "curves-plot"} <= {
        name for name, *_ in drawn
    }
    for name, n_drawings, n_marks, wide in drawn:
        assert n_drawings >= 1, name
        assert n_marks >= 1, name
        assert 0 < wide <= width, name
    assert page.evaluate(AGENT_LINE) == rgb(theme["agent"])
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == rgb(theme["page"])
    picture = tmp_path / "page.png"
    page.screenshot(path=picture, full_page=True)
    assert picture.stat().st_size > 50_000


def test_a_change_of_theme_redraws_the_figures(browser, report):
    page = visit(browser, report, DESKTOP, "light").page
    page.emulate_media(color_scheme="dark")
    wait_until(page, f"{AGENT_LINE} === '{rgb(DARK['agent'])}'")
    assert page.evaluate(AGENT_LINE) == rgb(DARK["agent"])


def test_another_window_can_be_chosen_and_zoomed_into(browser, report):
    visited = visit(browser, report, DESKTOP, "light")
    page = visited.page
    line = "document.querySelector('#positions-plot path.js-line').getAttribute('d')"
    before = page.evaluate(line)
    page.select_option("#positions-plot-choice", "1")
    wait_until(page, f"{line} !== {before!r}")
    span = "document.getElementById('positions-plot').layout.xaxis.range"
    whole = page.evaluate(span)
    page.locator("#positions-plot").scroll_into_view_if_needed()
    box = page.locator("#positions-plot .nsewdrag").first.bounding_box()
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.3, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, y, steps=8)
    page.mouse.up()
    wait_until(page, f"{span}[0] !== {whole[0]!r}")
    low, high = page.evaluate(span)
    assert whole[0] < low < high < whole[1]
    assert visited.troubles == []


def test_paper_is_light_and_nothing_is_cut_off(browser, report):
    page = visit(browser, report, DESKTOP, "dark").page
    printed = page.pdf(prefer_css_page_size=True)
    assert printed.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) >= 3
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(AGENT_LINE) == rgb(LIGHT["agent"])
    assert page.evaluate("[...document.querySelectorAll('details')].every((fold) => fold.open)")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(AGENT_LINE) == rgb(DARK["agent"])
    assert not page.evaluate("[...document.querySelectorAll('details')].some((fold) => fold.open)")


def test_the_words_do_not_need_scripts(browser, report):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report.as_uri())
    assert "vidence of skill" in page.locator(".verdict p").first.inner_text()
    assert "Buy and hold returned" in page.locator(".verdict .more").inner_text()
    assert page.locator("table").first.is_visible()
    assert "need JavaScript" in page.locator("noscript").inner_text()


def test_scripts_of_others_do_not_run(browser, report, tmp_path):
    content = report.read_text(encoding="utf-8")
    planted = tmp_path / "planted.html"
    planted.write_text(content.replace("<main>", "<main><script>window.ran = 1</script>", 1))
    page = browser.new_context().new_page()
    page.goto(planted.as_uri())
    page.wait_for_selector("html[data-drawn]", state="attached", timeout=120_000)
    assert page.evaluate("window.ran") is None


def test_a_report_prints_to_pdf_without_a_driver(browser, report):
    path = write_pdf(report)
    assert path == report.with_suffix(".pdf")
    data = path.read_bytes()
    assert data.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", data)) >= 3
