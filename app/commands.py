"""What each command does. Files go the same way as uploads: same engine, same records."""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from app import logs, main, offline, server, tree
from app.admission import Permit
from app.answers import Answer, EncodedImage, Output
from app.chains import encoded_there, encoding_of, format_for, parsed_json
from app.intake import Item, Url
from app.metrics import Metrics
from app.options import read
from app.records import line, record
from app.service import Service
from app.spool import Blob
from models.codec import ENCODABLE, ImageFormat
from models.deadline import NEVER
from models.errors import InvalidParameter, MalformedRequest, ServiceError
from models.schemas import ClassifyOptions, EncodingOptions
from models.settings import Settings
from workers.filters import FILTERS, describe, parse_chain
from workers.operations import Classify, FilterChain

AHEAD = 32
"""Files under way at a time: enough to fill micro-batches, few enough to hold in memory."""

ItemWork = Callable[[Service, Item, Permit], Awaitable[Answer]]


def serve(settings: Settings) -> int:
    """Serve HTTP until stopped."""
    logs.configure(settings.log_level)
    try:
        plan = tree.Plan.of(settings)
    except ValueError as error:
        return _wrong(str(error))
    if not plan.front_ends:
        return server.run(main.create_app(settings), settings)
    if not hasattr(os, "memfd_create"):
        return _wrong("--front-ends: several processes share memory as only Linux can")
    try:
        return tree.run(settings, plan)
    except OSError as error:
        print(f"darkroom: {settings.host}:{settings.port}: {error}", file=sys.stderr)
        return 1


def classify(settings: Settings, files: Sequence[str], top_k: int) -> int:
    """One JSON line per file, in order; exit code 1 when any failed."""
    try:
        operation = Classify(read(ClassifyOptions, {"top_k": top_k}).top_k)
    except InvalidParameter as error:
        return _wrong(f"--top-k: {error.errors[0].message} (given: {top_k})")

    async def work(service: Service, item: Item, permit: Permit) -> Answer:
        return await service.pipeline.classify(item, operation, NEVER, permit)

    def show(service: Service, answer: Answer) -> None:
        labels = service.model.labels if service.model else None
        _print(line(record(answer, labels)))

    return asyncio.run(_each(settings, files, work, show, needs_weights=True))


def filter_files(
    settings: Settings,
    files: Sequence[str],
    ops: str,
    output: str,
    **encoding: Any,
) -> int:
    """Filtered files to `output`, one JSON line each to stderr; exit code 1 when any failed.

    `encoding`: the format and all else that `POST /filter` takes of encoding.
    """
    try:
        chain = FilterChain(parse_chain(parsed_json(ops)))
    except ValueError as error:
        return _wrong(f"--ops is not JSON: {error}")
    except ServiceError as error:
        return _wrong(f"--ops: {error.detail}")
    target = Path(output)
    if len(files) > 1 and not target.is_dir():
        return _wrong(f"--output: {output} is not a folder, and there are {len(files)} files")
    wanted = encoding.pop("format") or _format_of(target)
    if output != "-" and (problem := _problem_of(target, files, wanted)):
        return _wrong(f"--output: {problem}")
    try:
        asked = encoding_of(read(EncodingOptions, {**encoding, "format": wanted}))
        chain = encoded_there(chain, asked, wanted)
    except InvalidParameter as error:
        wrong = error.errors[0]
        return _wrong(f"--{wrong.path.replace('_', '-')}: {wrong.message}")
    how = Output(lambda source: format_for(wanted, None, source), asked)

    async def work(service: Service, item: Item, permit: Permit) -> Answer:
        return await service.pipeline.filter(item, chain, how, NEVER, permit)

    def show(service: Service, answer: Answer) -> None:
        if isinstance(answer.outcome, EncodedImage):
            _write(answer.outcome, output, answer.item.source or "image")
        print(line(record(answer)).decode(), end="", file=sys.stderr)

    return asyncio.run(_each(settings, files, work, show))


def filters(settings: Settings, name: str | None) -> int:
    """The filters, or one filter's declaration."""
    if name is None:
        for each in FILTERS.values():
            shown = describe(each)
            print(f"{shown['name']:16} {shown['description']}")
        return 0
    if name not in FILTERS:
        return _wrong(f"no filter {name!r}; there are {', '.join(FILTERS)}")
    print(json.dumps(describe(FILTERS[name]), indent=2))
    return 0


def weights(settings: Settings, action: str, name: str) -> int:
    """Download, verify or list published weights."""
    return offline.manage_weights(settings, action, name)


def profile(settings: Settings, seconds: float, output: str, ops: str | None) -> int:
    """A trace of the worker under load, and on standard output what it says of the device."""
    logs.configure("warning")
    try:
        operation = FilterChain(parse_chain(parsed_json(ops))) if ops else Classify()
    except (ValueError, ServiceError) as error:
        return _wrong(f"--ops: {error}")
    try:
        found = offline.profile(settings, operation, seconds, Path(output))
    except (ValueError, OSError) as error:  # of the settings, or of the file
        return _wrong(str(error))
    print(json.dumps(found, indent=2))
    return 0


async def _each(
    settings: Settings,
    files: Sequence[str],
    work: ItemWork,
    show: Callable[[Service, Answer], None],
    *,
    needs_weights: bool = False,
) -> int:
    logs.configure("warning")
    try:
        service = await main.start_service(settings, Metrics(), needs_weights)
    except ValueError as error:  # of the settings: weights that do not fit their labels, no GPU
        return _wrong(str(error))
    try:
        if needs_weights and service.model is None:
            return _wrong(str(service.computing().weights_problem))
        failed = 0
        with service.admission.admit(0, 0) as permit:
            async for answer in _in_order(service, files, work, permit):
                failed += isinstance(answer.outcome, ServiceError)
                show(service, answer)
        return 1 if failed else 0
    finally:
        await main.stop_service(service)


async def _in_order(service: Service, files: Sequence[str], work: ItemWork, permit: Permit) -> Any:
    items = (Item(n, _content(name), name) for n, name in enumerate(files))
    under_way: list[asyncio.Future[Answer]] = []
    for item in items:
        under_way.append(asyncio.ensure_future(work(service, item, permit)))
        if len(under_way) >= AHEAD:
            yield await under_way.pop(0)
    for task in under_way:
        yield await task


def _content(name: str) -> Blob | Url | ServiceError:
    if name.startswith(("http://", "https://")):
        return Url(name)
    try:
        return Blob.of(sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes())
    except OSError as error:
        return MalformedRequest(f"cannot read {name}: {error.strerror}")


def _format_of(target: Path) -> ImageFormat | None:
    return next((f for f in ENCODABLE if target.suffix.lower() in (f.extension, "." + f)), None)


def _problem_of(target: Path, files: Sequence[str], wanted: str | None) -> str | None:
    """Why results may not be written there: nothing of anybody is overwritten unasked."""
    if not target.is_dir():
        if target.suffix and not wanted:
            written = ", ".join(each.extension for each in ENCODABLE)
            return f"{target.suffix} is not written, only {written}; or say --format"
        same = target.resolve() in {Path(name).resolve() for name in files}
        missing = None if target.parent.is_dir() else f"there is no folder {target.parent}"
        return f"{target} is the source itself" if same else missing
    stems = [Path(name).stem for name in files]
    if len(set(stems)) < len(stems):
        return f"two of the files would have the same name in {target}; filter them one by one"
    for name, stem in zip(files, stems, strict=True):
        suffix = f".{wanted}" if wanted else Path(name).suffix
        if (target / (stem + suffix)).resolve() == Path(name).resolve():
            return f"{name} is there itself; choose another folder or --format"
    return None


def _write(image: EncodedImage, output: str, source: str) -> None:
    if output == "-":
        _print(image.data)
        return
    target = Path(output)
    if target.is_dir():
        target /= Path(source).stem + image.format.extension
    target.write_bytes(image.data)


def _print(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _wrong(message: str) -> int:
    print(f"darkroom: {message}", file=sys.stderr)
    return 2
