"""Every shared file is answered as before there were bounds and decoder processes.

`codec_answers.json` holds what the code before them answered: a digest of pixels, shape, header,
copyright and EXIF, or the code of the error. It holds for one version of Pillow.
"""

import asyncio
import hashlib
import json
from pathlib import Path

import PIL
import pytest

from app.decoders import DecoderLimits, DecoderPool
from models import codec
from models.domain.errors import ServiceError
from models.domain.image import Image
from tests.shared import SHARED

RECORDED = json.loads((Path(__file__).parent / "codec_answers.json").read_text())
LIMIT = 50_000_000


def answer(found: codec.Decoded) -> str:
    assert isinstance(found.image, Image)
    pixels = hashlib.sha256(found.image.pixels.tobytes()).hexdigest()[:24]
    exif = hashlib.sha256(found.exif or b"").hexdigest()[:12]
    facts = [[*found.image.pixels.shape], pixels, str(found.info), found.copyright, exif]
    return "ok " + hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def files() -> dict[str, bytes]:
    if PIL.__version__ != RECORDED["pillow"]:
        pytest.skip(f"the answers were recorded with Pillow {RECORDED['pillow']}")
    found = {name: SHARED / name for name in RECORDED["answers"] if (SHARED / name).is_file()}
    if not found:
        pytest.skip("the files of ../shared/data are not here")
    return {name: path.read_bytes() for name, path in found.items()}


def test_threads_answer_as_before() -> None:
    for name, data in files().items():
        try:
            found = answer(codec.decode(data, max_pixels=LIMIT))
        except ServiceError as error:
            found = error.code
        assert found == RECORDED["answers"][name], name


def test_processes_answer_as_before() -> None:
    async def all_answers(files: dict[str, bytes]) -> dict[str, str]:
        pool, found = DecoderPool(DecoderLimits(2, LIMIT, 32 << 20, 10.0)), {}

        async def one(name: str, data: bytes) -> None:
            try:
                decoded = await pool.decode(data, len(data))
            except ServiceError as error:
                found[name] = error.code
            else:
                assert isinstance(decoded, codec.Decoded)
                found[name] = answer(decoded)

        await asyncio.gather(*(one(name, data) for name, data in files.items()))
        await pool.aclose()
        return found

    given = files()
    found = asyncio.run(all_answers(given))
    assert found == {name: RECORDED["answers"][name] for name in given}
