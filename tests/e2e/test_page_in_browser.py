"""The page in a real browser: what a person sees, and what it sends."""

import csv
import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.browser import WITHIN, add_filter, chromium, opened
from tests.drawn_classes import golf_ball
from tests.e2e.conftest import Running
from tests.pictures import encoded, jpeg
from workers.filters.registry import FILTERS

pytestmark = pytest.mark.slow

Open = Callable[..., AbstractContextManager[Any]]
Schema = dict[str, Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture
def open_page(browser: Any, request: pytest.FixtureRequest) -> Open:
    server: Running = request.getfixturevalue("server")  # not started where there is no browser
    return partial(opened, browser, f"http://127.0.0.1:{server.port}/")


@pytest.fixture
def page(open_page: Open) -> Iterator[Any]:
    with open_page() as opened_page:
        yield opened_page


def shows(locator: Any, text: str | re.Pattern[str]) -> None:
    """Wait until an element contains a text."""
    from playwright.sync_api import expect

    expect(locator).to_contain_text(text, timeout=WITHIN)


def file(name: str, body: bytes, kind: str = "image/jpeg") -> dict[str, Any]:
    return {"name": name, "mimeType": kind, "buffer": body}


def give(page: Any, *files: dict[str, Any], shown: str = "") -> None:
    """Give files to the page, and wait until it has summed them up."""
    page.set_input_files("#files", list(files))
    if shown:
        shows(page.locator("#summary"), shown)


def ball() -> dict[str, Any]:
    return file("golf_ball.jpg", encoded(golf_ball(), quality=92))


def test_an_image_that_is_given_is_labelled_with_bars(page: Any) -> None:
    give(page, ball(), shown="1 of 1 labelled")
    assert page.locator("#labels li").count() == 5
    width = page.locator("#labels .bar").first.bounding_box()["width"]
    assert width > 0
    shows(page.locator("#announcer"), "1 of 1 labelled")


DROP = """async (target, [kind, content]) => {
    const data = new DataTransfer();
    if (kind === "drop") {
        const bytes = await (await fetch(content)).blob();
        data.items.add(new File([bytes], "dropped.jpg", { type: bytes.type }));
        target.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true }));
    } else {
        data.setData("text/plain", content);
        target.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true }));
    }
}"""
"""What happens in a browser when a person drops a file, or pastes a text."""


def test_a_dropped_file_and_a_pasted_address_are_labelled(page: Any) -> None:
    body = page.locator("body")
    body.evaluate(DROP, ["drop", "page/sample.jpg"])
    shows(page.locator("#summary"), "1 of 1 labelled")
    body.evaluate(DROP, ["paste", f"see {page.url}page/sample.jpg"])
    shows(page.locator("#summary"), "2 of 2 labelled")
    names = page.locator("#strip .name").all_inner_texts()
    assert names == ["dropped.jpg", "sample.jpg"]


def test_a_chain_shows_before_and_after_with_a_divider(page: Any) -> None:
    give(page, ball())
    add_filter(page, "invert")
    page.wait_for_selector("#stage.compared #after[src]")
    divider = page.locator("#divider")
    divider.focus()
    page.keyboard.press("End")
    assert divider.get_attribute("aria-valuetext") == "100 % before"
    page.keyboard.press("Home")
    assert divider.get_attribute("aria-valuetext") == "0 % before"
    add_filter(page, "gaussian_blur")
    shows(page.locator("#facts"), "JPEG")
    assert page.locator("#download").get_attribute("download") == "golf_ball-filtered.jpg"


def test_the_chain_is_sent_in_its_order_without_what_is_switched_off(page: Any) -> None:
    for name in ("invert", "sepia", "otsu", "flip"):
        add_filter(page, name)
    page.get_by_role("button", name="Move Sepia up").click()
    page.get_by_role("switch", name="Apply Otsu").uncheck()
    page.get_by_role("button", name="Remove Flip").click()
    shows(page.locator("#code"), 'ops=[{"name":"sepia"},{"name":"invert"}]')


def test_a_wrong_value_is_explained_at_its_control(page: Any) -> None:
    give(page, ball())
    add_filter(page, "levels")
    white = page.locator("[data-parameter=in_white]")
    white.locator("input[type=number]").fill("10")
    shows(white.locator(".error"), "above in_black")
    field = white.locator("input[type=number]")
    assert field.get_attribute("aria-invalid") == "true"
    field.fill("200")
    white.locator(".error").wait_for(state="hidden")
    page.wait_for_selector("#stage.compared")


def test_a_bad_file_fails_alone_and_says_why(page: Any) -> None:
    give(page, ball(), file("notes.jpg", b"this is no image"), ball())
    shows(page.locator("#summary"), "2 of 3 labelled, 1 failed")
    shows(page.locator("#strip li.failed"), "not an image of a format read here")


def test_cancelling_keeps_what_is_done_and_trying_again_does_the_rest(page: Any) -> None:
    page.route("**/classify", lambda _route: None)  # the request is never answered
    give(page, *(file(f"{n}.jpg", jpeg(n, 64, 48)) for n in range(6)))
    page.locator("#strip li.working").nth(3).wait_for()
    page.locator("#cancel").click()
    assert page.locator("#strip li.cancelled").count() == 6
    page.unroute("**/classify")
    page.locator("#retry").click()
    shows(page.locator("#summary"), "6 of 6 labelled")


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_is_asked_again_after_the_time_it_names(page: Any, status: int) -> None:
    busy = {"status": status, "body": '{"detail": "busy", "code": "overloaded"}'}
    page.route("**/classify", lambda route: route.fulfill(headers={"Retry-After": "1"}, **busy))
    give(page, ball())
    shows(page.locator("#strip li"), "trying again in 1 s")
    page.unroute("**/classify")
    shows(page.locator("#summary"), "1 of 1 labelled")


@pytest.mark.parametrize("status", [401, 403])
def test_a_server_that_needs_another_key_gets_it(page: Any, status: int) -> None:
    keys: list[str | None] = []

    def answer(route: Any) -> None:
        keys.append(route.request.headers.get("authorization"))
        if keys[-1]:
            route.fallback()
        else:
            route.fulfill(status=status, body='{"detail": "a key is needed"}')

    page.route("**/classify", answer)
    give(page, ball())
    page.locator("#key").fill("secret")
    page.get_by_role("button", name="Use this key").click()
    shows(page.locator("#summary"), "1 of 1 labelled")
    assert keys == [None, "Bearer secret"]
    for language in ("curl", "Python", "JavaScript"):
        code = shown_code(page, language, "filter")
        assert "Authorization" in code
        assert "secret" not in code


def test_all_images_are_filtered_and_saved_in_one_archive(page: Any) -> None:
    give(page, ball(), file("broken.jpg", b"this is no image"), ball())
    add_filter(page, "invert")
    shows(page.locator("#summary"), "2 of 3 labelled, 1 failed")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Filter all 3 and save as ZIP").click()
    with zipfile.ZipFile(saved.value.path()) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == ["golf_ball-filtered.jpg", "golf_ball-filtered-2.jpg"]
        assert Image.open(archive.open("golf_ball-filtered.jpg")).size == golf_ball().size
    shows(page.locator("#batch-note"), "2 of 3 images were filtered. broken.jpg: The bytes are")


def shown_code(page: Any, language: str, kind: str) -> str:
    page.get_by_text(language, exact=True).click()
    page.select_option("#code-kind", kind)
    text: str = page.locator("#code").inner_text()
    return text


@pytest.mark.parametrize("language", ["curl", "Python"])
def test_the_code_to_copy_gives_what_the_page_shows(
    page: Any, tmp_path: Path, language: str
) -> None:
    name = 'it\'s a; "ball".jpg'
    (tmp_path / name).write_bytes(ball()["buffer"])
    give(page, file(name, ball()["buffer"]))
    add_filter(page, "colorize")
    page.select_option("#format", "webp")
    page.wait_for_selector("#stage.compared")
    shows(page.locator("#facts"), "WEBP")
    with page.expect_download() as saved:
        page.locator("#download").click()
    code = shown_code(page, language, "filter")
    run(language, code, tmp_path)
    (made,) = tmp_path.glob("*-filtered.webp")
    assert made.read_bytes() == Path(saved.value.path()).read_bytes()
    labels = json.loads(run(language, shown_code(page, language, "classify"), tmp_path))
    assert labels["results"][0]["predictions"][0]["label"]
    both = json.loads(run(language, shown_code(page, language, "process"), tmp_path))
    assert both["results"][0]["versions"][0]["image"]["media_type"] == "image/webp"


def run(language: str, code: str, folder: Path) -> str:
    """Run a program as a person would; Python's prints a dictionary, which is made JSON here."""
    if language == "curl":
        if shutil.which("curl") is None:
            pytest.skip("curl is not installed")
        command = ["sh", "-c", code.replace("curl ", "curl -s ", 1)]
    else:
        printed = code.replace("print(response.json())", "print(response.text)")
        command = [sys.executable, "-c", printed]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_address_that_is_wrong_says_why_and_the_good_ones_go_on(page: Any) -> None:
    good = f"{page.url}page/sample.jpg"
    page.locator("#urls").fill(f"not-an-address {good} ftp://a/b.jpg http://127.0.0.1:1/a.jpg")
    page.get_by_role("button", name="Fetch").click()
    shows(page.locator("#urls-error"), "“not-an-address”, “ftp://a/b.jpg” are not addresses")
    assert page.locator("#urls").input_value() == "not-an-address ftp://a/b.jpg"
    shows(page.locator("#summary"), "1 of 2 labelled, 1 failed")


def test_the_labels_of_all_images_are_saved_as_csv_and_json(page: Any) -> None:
    broken = file('=cmd|"x",1.jpg', b"this is no image")
    give(page, ball() | {"name": "+ball.jpg"}, broken, file("-1.jpg", jpeg()))
    shows(page.locator("#summary"), "2 of 3 labelled, 1 failed")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Labels as CSV").click()
    with saved.value.path().open(newline="") as lines:
        head, *rows = csv.reader(lines)
    assert head == ["image", "rank", "label", "wnid", "class_id", "score", "error"]
    assert [row[0] for row in rows] == ["'+ball.jpg"] * 5 + ['\'=cmd|"x",1.jpg'] + ["'-1.jpg"] * 5
    assert [row[1] for row in rows[:5]] == ["1", "2", "3", "4", "5"]
    assert rows[5][1:6] == [""] * 5
    assert "bytes" in rows[5][6]
    with page.expect_download() as saved:
        page.get_by_role("button", name="Labels as JSON").click()
    first, second, _ = json.loads(saved.value.path().read_text())
    assert (first["image"], second["image"]) == ("+ball.jpg", '=cmd|"x",1.jpg')
    assert [each["label"] for each in first["predictions"]] == [row[2] for row in rows[:5]]
    assert float(rows[0][5]) == first["predictions"][0]["score"]
    assert second["error"]


def test_the_gallery_finds_filters_and_adds_only_what_is_chosen(page: Any) -> None:
    page.get_by_role("button", name="Add a filter").click()
    cards = page.locator("#gallery-list button:visible")
    cards.first.wait_for()
    assert cards.count() == len(FILTERS) - 1, "the page cannot send the picture of overlay"
    page.get_by_text("Geometry", exact=True).first.click()
    assert {"Add Crop", "Add Flip"} <= {each.get_attribute("aria-label") for each in cards.all()}
    assert cards.count() < 10
    page.keyboard.press("Home")
    page.keyboard.press("ArrowLeft")
    page.get_by_text("All", exact=True).click()
    page.locator("#gallery-search").fill("gaussian blur")
    assert page.locator("#steps > li").count() == 0
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    shows(page.locator("#steps"), "Gaussian blur")
    assert page.locator("#view-try").is_visible()
    assert page.locator(":focus").inner_text() == "Gaussian blur"


def test_the_address_keeps_the_chain_and_the_back_button_returns(page: Any) -> None:
    add_filter(page, "gaussian_blur")
    sigma = page.locator("[data-parameter=sigma] input[type=number]")
    sigma.fill("7.5")
    add_filter(page, "convolve")
    page.get_by_role("switch", name="Apply Convolve").uncheck()
    page.select_option("#format", "webp")
    page.locator("[data-parameter=quality] input[type=number]").fill("31")
    page.wait_for_url("**quality=31**")
    code, address = page.locator("#code").inner_text(), page.url
    page.get_by_role("link", name="Live").click()
    page.locator("#view-live").wait_for()
    page.reload()
    page.wait_for_selector("html[data-ready]")
    page.get_by_role("link", name="Try it").click()
    assert page.locator("#code").inner_text() == code
    assert not page.get_by_role("switch", name="Apply Convolve").is_checked()
    for _ in range(5):  # both views, the quality, the format, and the switch
        page.go_back()
    page.get_by_role("switch", name="Apply Convolve", checked=True).wait_for()
    page.go_back()
    page.locator("#view-filters").wait_for()
    page.go_back()
    page.locator("#steps > li:only-child").wait_for()
    assert sigma.input_value() == "7.5"
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_selector("html[data-ready]")
    assert page.locator("#code").inner_text() == code


def test_a_crop_begins_at_the_whole_picture_and_stays_within_it(page: Any) -> None:
    give(page, file("a.jpg", jpeg(0, 300, 200)), shown="1 of 1 labelled")
    add_filter(page, "crop")
    field = "[data-parameter={}] input[type=number]"
    names = ("left", "top", "width", "height")
    values = [page.locator(field.format(name)).input_value() for name in names]
    assert values == ["0", "0", "300", "200"]
    page.locator(field.format("left")).fill("120")
    assert page.locator(field.format("width")).input_value() == "180"
    shows(page.locator("#code"), '"left":120}]')  # the width reaches the edge: it is left out
    slider = page.locator("[data-parameter=height] input[type=range]")
    slider.press("Home")
    assert page.locator(field.format("height")).input_value() == "1"
    add_filter(page, "gaussian_blur")
    shows(page.locator("#facts"), "JPEG")
    assert page.locator("#viewer-error").is_hidden()
    page.get_by_role("button", name="Remove all filters").click()
    add_filter(page, "rotate90")
    add_filter(page, "crop")
    shows(page.locator("#code"), '{"name":"crop"}]')


def test_the_bundled_network_is_said_before_and_beside_the_labels(page: Any) -> None:
    few = {"network": "resnet18", "name": "bundled", "label_set": "imagenette10"}
    classes = [{"label": each} for each in ("tench", "church")]
    body = {"models": [few | {"n_classes": 2, "classes": classes}]}
    page.route("**/models", lambda route: route.fulfill(body=json.dumps(body)))
    page.reload()
    shows(page.locator("#networks-warning"), "knows only 2 things: tench, church.")
    predicted = [{"label": "tench", "score": 1, "class_id": 0}]
    reply = {"model": few | {"n_classes": 2}, "results": [{"predictions": predicted}]}
    page.route("**/classify", lambda route: route.fulfill(body=json.dumps(reply)))
    give(page, ball())
    shows(page.locator("#model-warning"), "knows only 2 things")
    box = page.locator("#model-warning").bounding_box()
    assert box["y"] + box["height"] < page.viewport_size["height"]


def test_the_reference_explains_every_endpoint(page: Any) -> None:
    document = page.request.get(f"{page.url}openapi.json").json()
    page.goto(f"{page.url}docs")
    page.locator("#reference section").first.wait_for()
    endpoints = page.locator("details.endpoint")
    count = sum(len(operations) for operations in document["paths"].values())
    assert endpoints.count() == count
    first = endpoints.first
    shows(first, "integer from 1 to 1000 · query · default 5")
    values = first.locator(".values").first.locator("li").all_inner_texts()
    assert values == ["softmax", "sigmoid", "none"]
    answer = first.locator("dt:has(code.s2) + dd")
    answer.get_by_text("Schema and example").first.click()
    shows(answer, '"predictions"')
    page.get_by_role("button", name="Open all").click()
    assert "[object" not in page.locator("#reference").inner_text()
    page.locator("#reference-search").fill("thumbnail")
    assert 0 < page.locator("details.endpoint:visible").count() < count
    page.get_by_role("link", name="Try it").click()
    page.locator("#view-try").wait_for()


def test_the_live_view_counts_images(page: Any) -> None:
    give(page, ball(), shown="1 of 1 labelled")
    page.get_by_role("link", name="Live").click()
    shows(page.locator("#live-state"), "Ready")
    shows(page.locator("#live-total"), re.compile(r"[1-9]"))
    shows(page.locator("#live-stages"), "compute")
    shows(page.locator("#live-sizes"), "up to 1")
    shows(page.locator("#live-limits"), "images in flight")


@pytest.mark.parametrize("view", ["#try", "#filters", "#live", "#docs"])
def test_a_phone_never_scrolls_sideways(open_page: Open, view: str) -> None:
    with open_page(viewport={"width": 360, "height": 740}, has_touch=True) as page:
        give(page, ball())
        add_filter(page, "color_matrix")
        shows(page.locator("#summary"), "1 of 1 labelled")
        page.goto(page.url.partition("#")[0] + view)
        page.locator(view.replace("#", "#view-")).wait_for()
        root = page.locator("html")
        assert root.evaluate("e => e.scrollWidth <= e.clientWidth")


def test_everything_that_takes_the_focus_has_a_name(page: Any) -> None:
    give(page, ball())
    for name in ("colorize", "convolve", "pad", "resize", "autocontrast"):
        add_filter(page, name)
    page.wait_for_selector("#stage.compared")
    tree = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")
    for node in tree["nodes"]:
        properties = {each["name"]: each["value"] for each in node.get("properties", [])}
        role = node.get("role", {}).get("value")
        focusable = properties.get("focusable", {}).get("value")
        if focusable and role not in ("RootWebArea", "generic", "main"):
            assert node["name"]["value"].strip(), node
