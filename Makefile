# One-word tasks; `make serve` and `make test` need nothing but Python 3.11+ and make.
PYTHON ?= python3
BIN := .venv/bin
# uv installs where it is present; `make serve UV=` takes pip, which reads your pip settings.
UV := $(shell command -v uv)
PIP = $(if $(UV),$(UV) pip install -q --python $(BIN)/python,$(BIN)/python -m pip install -q)
# The locks keep extras, because pip before 23.3 pins `coverage[toml]` only where a line names the extra.
LOCK = $(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes \
	--no-strip-extras --no-emit-index-url --no-annotate --custom-compile-command "make lock"
CUDA = $(wildcard workers/kernels/*.cu workers/kernels/headers/*.cuh workers/filters/*/*.cu* tests/emulation/*.hpp)

# PyTorch's wheels without CUDA, which the package index does not have for x86-64.
TORCH_INDEX = https://download.pytorch.org/whl/cpu

.PHONY: install serve test test-slow test-all coverage lint format clients bench test-gpu docs site image lock

install: .venv/.installed

.venv/.installed: requirements-dev.lock requirements-docs.lock pyproject.toml clients/python/pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) --require-hashes -r requirements-dev.lock
	$(PIP) --require-hashes -r requirements-docs.lock
	$(PIP) --no-deps --no-build-isolation -e clients/python -e .
	rm -f .venv/.runtime-*
	touch $@

# `make serve` installs only what runs: no tools of development, and CuPy and nvJPEG only where
# nvidia-smi lists a GPU. All kinds of installation share `.venv`; each removes the marks of the others,
# because it may have replaced packages of theirs.
GPU := $(shell nvidia-smi -L 2>/dev/null | grep -c '^GPU ')
RUNTIME = $(if $(filter-out 0,$(GPU)),requirements-gpu.lock,requirements.lock)

# `make serve RUNTIME=requirements-cpu.lock` takes PyTorch without CUDA from PyTorch's own index.
EXTRA = $(if $(filter requirements-cpu.lock,$(RUNTIME)),--extra-index-url $(TORCH_INDEX) \
	$(if $(UV),--index-strategy unsafe-best-match))

serve: .venv/.runtime-$(RUNTIME)
	$(BIN)/darkroom serve

.venv/.runtime-$(RUNTIME): $(RUNTIME) docker/requirements-build.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) --require-hashes -r $(RUNTIME) $(strip $(EXTRA))
	$(PIP) --require-hashes -r docker/requirements-build.lock
	$(PIP) --no-deps --no-build-isolation -e .
	rm -f .venv/.installed .venv/.runtime-*
	touch $@

# A test process for each core, at most eight, because each loads PyTorch. The tests of one file stay
# in one process and share its servers. Files that take long come first, so that all end together.
PARALLEL = -n auto --maxprocesses 8 --dist loadscope --no-loadscope-reorder
TESTS = tests/e2e tests/unit/workers $(filter-out %/workers %/__pycache__,$(wildcard tests/unit/*)) \
	tests/contract tests/gpu clients/python/tests

# Images of containers often set it: then each process that a test starts compiles all modules again.
unexport PYTHONDONTWRITEBYTECODE

test: install
	$(BIN)/pytest $(PARALLEL) $(TESTS)

# What takes longer: kernels compiled for each GPU, every page of docs/, the page in Chromium, every
# byte of an archive, and ten times as many examples for each property.
test-slow: install
	$(BIN)/pytest $(PARALLEL) -m "(slow or hypothesis) and not gpu" --hypothesis-profile thorough $(TESTS)

test-all: test test-slow

# How much of the program the tests run, in percent: the last line of the report. It is not part of
# `make test`: on Python 3.11 counting takes 29 % more CPU time (603 tests of connections and fetches).
coverage: install
	$(BIN)/pytest $(PARALLEL) $(TESTS) --cov --cov-report=term:skip-covered

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(CUDA)
	$(BIN)/mypy
	$(BIN)/python -m tools.audit

format: install
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CUDA)
	$(BIN)/ruff check --fix .

# The client in TypeScript, with its types from the server's own document; needs Node 20 and npm.
# The Python client is part of `make install`.
clients: install
	$(BIN)/python -m tools.openapi_document build/openapi.json
	cd clients/typescript && npm ci --no-audit --no-fund && npm run generate && npm run build

bench: install
	$(BIN)/python -m tests.bench.filters_cpu
	$(BIN)/python -m tests.bench.serve_cpu
	$(BIN)/python -m tests.bench.encode

test-gpu: install
	$(BIN)/pytest -m gpu tests/gpu tests/contract

docs: install
	$(BIN)/python -m tools.filters_page
	$(BIN)/python -m tools.benchmarks_page
	$(BIN)/python -m tools.path_picture
	$(BIN)/python -m tools.dashboard

# The documentation as a site in build/site; its search works without a server.
site: install
	$(BIN)/python -m tools.site

# Needs Docker with Compose 2. It builds the image for machines without a GPU, waits until it is
# healthy, and ends it again. If it does not become healthy, its log is shown first.
image:
	docker compose build darkroom-cpu
	docker compose up --wait --wait-timeout 180 darkroom-cpu && \
	docker compose exec -T darkroom-cpu python /opt/darkroom/healthcheck.py || \
	{ docker compose logs darkroom-cpu; docker compose --profile cpu down; exit 1; }
	docker compose --profile cpu down

# The extra timm is in the lock of developers alone: it brings torch, of which each other lock has its own.
lock:
	test -x $(BIN)/uv || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q uv
	$(LOCK) -c locks.constraints pyproject.toml -o requirements.lock
	$(LOCK) -c locks.constraints pyproject.toml --extra gpu -o requirements-gpu.lock
	$(LOCK) -c locks-cuda13.constraints pyproject.toml --extra gpu-cuda13 \
		-o requirements-gpu-cuda13.lock
	$(LOCK) -c locks-cpu.constraints pyproject.toml --extra-index-url $(TORCH_INDEX) \
		--index-strategy unsafe-best-match -o requirements-cpu.lock
	$(LOCK) -c locks.constraints pyproject.toml --group dev -o requirements-dev.lock
	printf '%s\n' grpcio obstore opentelemetry-exporter-otlp-proto-http opentelemetry-sdk protobuf \
		'psycopg[binary]' pyarrow | $(LOCK) -c requirements-dev.lock - -o requirements-extras.lock
	$(LOCK) -c requirements-dev.lock --group docs -o requirements-docs.lock
	printf 'hatchling\neditables\n' | $(LOCK) -c requirements-dev.lock - -o docker/requirements-build.lock
