"""The report in a real browser: chromium (Debian's package), driven by playwright, with the network off.

Skipped, with the reason, where there is no browser (`apt-get install chromium`; FEDGT_BROWSER names another). The
accessibility check needs axe-core: `npm pack axe-core`, unpack, and let FEDGT_AXE be the path of axe.min.js.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fedgt.report import write_report
from report_lab import decided_result, spec_of, untested_result, write_folder

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

HOSTILE = ("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "very-long-" * 30, "a\u202egnp.exe")
KINDS = ("tested", "hostile", "deployed", "untested")
NAMES = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install '.[dev]'")
    program = os.environ.get("FEDGT_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip("needs a browser: apt-get install chromium, or set FEDGT_BROWSER to one")
    with api.sync_playwright() as playwright:
        # The sandbox needs rights that containers withhold; the page is our own and has no script.
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Kind of run -> address of its report."""
    spec = spec_of(15)
    results = {
        "tested": decided_result(spec),
        "hostile": decided_result(spec, names=[*HOSTILE, *(f"c{j}" for j in range(15 - len(HOSTILE)))]),
        "deployed": decided_result(spec, simulation=False),
        "untested": untested_result(spec),
    }
    addresses = {}
    for kind, result in results.items():
        folder = write_folder(tmp_path_factory.mktemp(kind), result, spec)
        write_report(folder)
        addresses[kind] = (folder / "report.html").as_uri()
    return addresses


def opened(browser: "Browser", address: str, *, width: int = 1280, dark: bool = False) -> "tuple[Page, list[str]]":
    """The page, and everything that went wrong or was asked for while it loaded."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light", offline=True
    )
    page = context.new_page()
    events: list[str] = []
    page.on("request", lambda request: events.append(f"request {request.url}"))
    page.on("console", lambda message: events.append(f"console {message.text}"))
    page.on("pageerror", lambda error: events.append(f"error {error}"))
    page.on("dialog", lambda dialog: events.append(f"dialog {dialog.message}"))
    page.goto(address)
    return page, [event for event in events if event != f"request {address}"]


@pytest.mark.parametrize("kind", KINDS)
def test_it_loads_offline_without_an_error_or_a_request(browser: "Browser", pages: dict[str, str], kind: str) -> None:
    page, events = opened(browser, pages[kind])
    assert events == []
    assert page.locator("h1").count() == 1
    assert page.locator("table").count() >= (3 if kind == "untested" else 7)
    assert page.locator("script, img, iframe, object").count() == 0
    assert page.evaluate("getComputedStyle(document.body).fontSize") == "16px"  # the style sheet passed the policy
    page.context.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [375, 1280])
def test_it_fits_the_screen(browser: "Browser", pages: dict[str, str], kind: str, width: int) -> None:
    page, _ = opened(browser, pages[kind], width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if kind != "untested":
        assert page.locator("td.wide").first.is_visible()
        box = page.locator("td.wide").first.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= width  # the reasons need no scrolling on a phone
    page.context.close()


def test_names_are_shown_as_they_are_written(browser: "Browser", pages: dict[str, str]) -> None:
    page, _ = opened(browser, pages["hostile"])
    shown = page.locator("tbody th bdi").all_inner_texts()
    assert set(HOSTILE[:2]) <= set(shown)
    assert "a\\u202egnp.exe" in shown
    page.context.close()


@pytest.mark.parametrize("dark", [False, True])
def test_dark_mode_changes_the_paper_and_print_is_light(
    browser: "Browser", pages: dict[str, str], tmp_path: Path, dark: bool
) -> None:
    page, _ = opened(browser, pages["tested"], dark=dark)
    background = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(background) == ("rgb(20, 23, 26)" if dark else "rgb(255, 255, 255)")
    page.emulate_media(media="print")
    assert page.evaluate(background) == "rgb(255, 255, 255)"
    page.pdf(path=tmp_path / "report.pdf", format="A4")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")
    page.context.close()


@pytest.mark.parametrize(
    ("kind", "width", "dark"),
    [
        ("untested", 1280, False),
        pytest.param("tested", 1280, True, marks=pytest.mark.slow),
        pytest.param("hostile", 375, False, marks=pytest.mark.slow),
        pytest.param("deployed", 1280, False, marks=pytest.mark.slow),
    ],
)
def test_axe_finds_nothing(browser: "Browser", pages: dict[str, str], kind: str, width: int, dark: bool) -> None:
    source = Path(os.environ.get("FEDGT_AXE", ""))
    if not source.is_file():
        pytest.skip("needs axe-core: npm pack axe-core, unpack it, and set FEDGT_AXE to the path of axe.min.js")
    page, _ = opened(browser, pages[kind], width=width, dark=dark)
    page.evaluate(f"{source.read_text(encoding='utf-8')};0")
    found = page.evaluate("axe.run()")
    assert [(one["id"], one["nodes"][0]["html"]) for one in found["violations"]] == []
    assert len(found["passes"]) > 20
    page.context.close()
