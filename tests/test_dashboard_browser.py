"""The dashboard in a browser: replay a sample, compare, move a slider, download, share a link."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import pytest

pytest.importorskip("streamlit", reason="the dashboard's packages are not installed")
pytest.importorskip("playwright", reason="playwright is not installed")

from playwright import sync_api as playwright

from tests.browser import browser_path, dashboard, headless, settle

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(browser_path() is None, reason="no Chromium is installed"),
]

PHONE = {"width": 390, "height": 844}
DESK = {"width": 1280, "height": 900}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with dashboard() as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[playwright.Browser]:
    with headless() as found:
        yield found


@pytest.fixture
def page(browser: playwright.Browser) -> Iterator[playwright.Page]:
    context = browser.new_context(viewport=DESK, accept_downloads=True)
    context.set_default_timeout(60_000)
    yield context.new_page()
    context.close()


def test_a_replay_is_compared_downloaded_and_shared(
    address: str, browser: playwright.Browser, page: playwright.Page, tmp_path: Path
) -> None:
    asked: set[str | None] = set()
    page.on("request", lambda request: asked.add(urlsplit(request.url).hostname))

    page.goto(f"{address}/replay?trace=code&allocator=radix&limit=60")
    settle(page)
    page.get_by_label("Name of the run").fill("mine")
    page.get_by_role("button", name="Replay", exact=True).click()
    page.get_by_text("mine is done and written").wait_for()
    page.get_by_role("link", name="Look at the run").click()
    page.get_by_role("heading", name="One run").wait_for()
    settle(page)
    assert "run=mine" in page.url

    page.goto(f"{address}/?run=paged&run=mine&focus=mine&baseline=paged&metric=tpot")
    settle(page)
    assert page.locator(".js-plotly-plot").count() == 4
    assert page.get_by_text("mine; deltas against paged").is_visible()

    with page.expect_download() as download:
        page.get_by_role("button", name="Download CSV").click()
    download.value.save_as(tmp_path / "runs.csv")
    header, *rows = (tmp_path / "runs.csv").read_text().splitlines()
    assert header.startswith("run,model,gpu")
    assert [row.split(",")[0] for row in rows] == ["paged", "mine"]

    with browser.new_context(viewport=DESK) as other:
        shared = other.new_page()
        shared.goto(page.url)
        settle(shared)
        assert shared.get_by_text("mine; deltas against paged").is_visible()
        assert shared.get_by_role("radio", name="TPOT").get_attribute("aria-checked") == "true"
    assert asked - {None} == {"127.0.0.1"}, "a page asks other machines"


def test_the_slider_of_the_memory_map_moves_the_picture_and_the_address(
    address: str, page: playwright.Page
) -> None:
    page.goto(f"{address}/memory?t=2")
    settle(page)
    caption = page.get_by_text("running,").first
    before = caption.inner_text()
    slider = page.get_by_role("slider").nth(1)
    for _ in range(20):
        slider.press("ArrowRight")
    page.wait_for_function("before => !document.body.innerText.includes(before)", arg=before)
    settle(page)
    assert float(page.evaluate("new URLSearchParams(location.search).get('t')")) > 2
    assert page.locator(".js-plotly-plot").count() == 7


@pytest.mark.parametrize(
    ("scheme", "names"), [("light", ("", "run")), ("dark", ("memory", "sizing"))]
)
def test_pages_fit_a_phone_in_light_and_dark(
    address: str,
    browser: playwright.Browser,
    scheme: Literal["light", "dark"],
    names: tuple[str, ...],
) -> None:
    with browser.new_context(viewport=PHONE, color_scheme=scheme) as context:
        page = context.new_page()
        for name in names:
            page.goto(f"{address}/{name}?lang=zh")
            settle(page)
            main = page.locator("[data-testid=stMain]")
            assert main.evaluate("main => main.scrollWidth <= main.clientWidth")
            app = page.locator("[data-testid=stApp]")
            colour = app.evaluate("app => getComputedStyle(app).backgroundColor")
            red = int(colour.removeprefix("rgb(").split(",")[0])
            assert (red < 64) == (scheme == "dark")
