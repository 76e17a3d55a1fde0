"""Chromium, driven by Playwright, for tests of the page; they are skipped where one is missing."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

WITHIN = 60_000
"""Milliseconds after which a test that waits for the page fails; no passing test needs them."""


@contextmanager
def chromium() -> Iterator[Any]:
    """Start the system's Chromium; skip the test where it or Playwright is missing."""
    program = (
        os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    )
    if program is None:
        pytest.skip("Chromium is not installed (on Debian: apt-get install chromium)")
    driver = pytest.importorskip(
        "playwright.sync_api", reason="Playwright is not installed; run `make install`"
    )
    with driver.sync_playwright() as playwright:
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=program, args=flags)
        yield browser
        browser.close()


@contextmanager
def opened(browser: Any, url: str, **options: Any) -> Iterator[Any]:
    """Open the page in a profile of its own; fail if a script fails or the policy forbids a thing.

    `options` are those of Playwright's browser contexts. Requests to other servers fail the test.
    """
    context = browser.new_context(**options)
    context.set_default_timeout(WITHIN)
    page = context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: _note(message, faults))
    page.on("request", lambda request: _ask(request.url, url, faults))
    page.goto(url)
    if options.get("java_script_enabled", True):
        page.wait_for_selector("html[data-ready]")
    yield page
    context.close()
    assert not faults


def _note(message: Any, faults: list[str]) -> None:
    """Note errors, but not the browser's own lines about answers such as 422."""
    if message.type == "error" and "Failed to load resource" not in message.text:
        faults.append(message.text)


def _ask(asked: str, url: str, faults: list[str]) -> None:
    if not asked.startswith((url, "blob:")):
        faults.append(f"the page asked {asked}")


def add_filter(page: Any, name: str) -> None:
    """Choose a filter in the gallery, as a person does."""
    page.locator("#add-filter").click()
    page.get_by_role("button", name=f"Add {title_of(name)}", exact=True).click()


def title_of(name: str) -> str:
    """Return the name of a filter or a parameter as the page shows it."""
    return name.replace("_", " ").capitalize()
