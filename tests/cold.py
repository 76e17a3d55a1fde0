"""`darkroom serve` whose processes send themselves no requests before they are ready.

These requests take most of the CPU time of a start. `tests.server.COLD` runs this module, and the
server that it starts runs it again for each front end and each worker. With
`tests.server.FILTERS` in its environment it has no networks, and loads no PyTorch for them; with
`TESTS_LEASE` the chunks of a job whose process was killed are free after fewer seconds.
"""

import os
import runpy
import sys
from unittest.mock import AsyncMock, Mock, patch

import app.cli.script  # noqa: F401  # sets the environment of thread pools before numpy is imported
from workers.engines.cpu.engine import CpuEngine
from workers.supervision import startup

if "TESTS_FILTERS_ONLY" in os.environ:
    start = startup.start_worker
    startup.start_worker = lambda *given, **more: start(*given, **more | {"weights": False})
if "TESTS_LEASE" in os.environ:
    patch("app.jobs.store.LEASE", float(os.environ["TESTS_LEASE"])).start()
patch.object(CpuEngine, "warm_up", Mock()).start()
name = sys.argv[1]
if name != "worker":  # which imports nothing of HTTP
    patch("app.processes.uvicorn_server.warm_up", AsyncMock()).start()
if name == "serve":
    patch("app.processes.plan.MODULE", "tests.cold").start()
runpy.run_module("app.cli" if name == "serve" else "app.processes.member", run_name="__main__")
