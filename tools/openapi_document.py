"""Write the OpenAPI document of the server: `python -m tools.openapi_document FILE`.

The clients' types are generated from it (`make clients`).
"""

import json
import sys
from pathlib import Path

from app.main import create_app
from models.settings import Settings


def document() -> str:
    """Return the document as JSON; no weights are loaded for it."""
    return json.dumps(create_app(Settings(weights="random")).openapi(), indent=1) + "\n"


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(document())
