"""The forms that work without scripts."""

import re

from app.routes.page import forms


def test_names_and_values_of_documents_are_text_and_never_markup() -> None:
    fields = {"files": {"type": "array"}, "<i>": {"default": '"><b>'}}
    content = {"multipart/form-data": {"schema": {"properties": fields}}}
    text = forms({"paths": {"/<a>": {"post": {"requestBody": {"content": content}}}}})
    assert text.startswith("<section>")
    assert not re.search(r"<(a|b|i)>", text)
