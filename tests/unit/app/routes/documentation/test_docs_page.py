"""What the page for people makes of a document."""

import re
from typing import Any

from app.routes.documentation.docs_page import page


def test_what_documents_say_is_text_and_never_markup() -> None:
    operation = {"description": "<b>", "parameters": [{"name": "<i>", "schema": {"type": "<u>"}}]}
    document = {
        "info": {"title": "<p>", "version": "1", "summary": "&"},
        "paths": {"/<a>": {"get": operation}},
    }
    text = page(document, ["<q>"])
    assert not re.search(r"<(b|i|u|q)>|<a>|<p>1|& ", text)


def test_a_bound_without_an_upper_one_is_shown() -> None:
    count = {"type": "integer", "minimum": 0}
    parameter = {"name": "offset", "in": "query", "schema": count, "description": "x"}
    document = {
        "info": {"title": "p", "version": "1", "summary": "s"},
        "paths": {"/a": {"get": {"description": "d", "parameters": [parameter]}}},
    }
    assert "integer of at least 0" in page(document, [])


def test_endpoints_that_a_server_may_not_offer_are_not_linked() -> None:
    paths: dict[str, Any] = {
        "/jobs": {"get": {"responses": {"501": {}}}},
        "/models": {"get": {"responses": {"200": {}}}},
    }
    info = {"title": "t", "version": "1", "summary": "s"}
    text = page({"info": info, "paths": paths}, [])
    assert 'href="models"' in text
    assert 'href="jobs"' not in text
