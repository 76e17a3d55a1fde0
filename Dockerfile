# Darkroom as an image, targets `cpu` and `gpu` (the default). docs/deploy.md tells how to run it.
# Needs Docker 25 or newer (BuildKit). There is no `# syntax=` line on purpose: a build without a
# network could not fetch the frontend that it names.

# Bookworm's glibc is new enough for every wheel in the lock files. Both targets share this base: the
# torch wheels bring the CUDA 12.8 libraries and CuPy loads those same copies, so an nvidia/cuda base
# would add gigabytes of a second CUDA that nobody loads. The driver is in no image at all: the
# NVIDIA Container Toolkit mounts the host's.
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm


# A folder that holds the file can stand in for this stage: --build-context weights=FOLDER
FROM scratch AS weights
ADD --checksum=sha256:f37072fd47e89c5e827621c5baffa7500819f7896bbacec160b1a16c560e07ec \
    https://download.pytorch.org/models/resnet18-f37072fd.pth /


FROM ${PYTHON_IMAGE} AS python
ENV PIP_CACHE_DIR=/root/.cache/pip \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_ONLY_BINARY=:all: \
    PIP_ROOT_USER_ACTION=ignore
# pip reads an index of your own from here; the argument stays out of the image's environment.
ARG PIP_INDEX_URL


# The cache folder as the service expects it. The digest is checked again, because a folder given by
# --build-context has not passed through ADD.
FROM python AS cache
WORKDIR /cache/weights
RUN --mount=type=bind,from=weights,target=/mnt \
    echo "f37072fd47e89c5e827621c5baffa7500819f7896bbacec160b1a16c560e07ec  resnet18-f37072fd.pth" \
        > /tmp/SHA256SUMS \
    && install --mode=444 /mnt/resnet18-f37072fd.pth . \
    && sha256sum --check --strict /tmp/SHA256SUMS


# Darkroom's own wheel, built by a locked hatchling: nothing is fetched that no lock file names.
FROM python AS wheel
WORKDIR /src
COPY docker/requirements-build.lock ./
RUN --mount=type=cache,target=/root/.cache/pip \
    pip install --require-hashes -r requirements-build.lock
COPY pyproject.toml README.md LICENSE ./
COPY app app
COPY darkroom darkroom
COPY models models
COPY workers workers
RUN pip wheel --no-deps --no-index --no-build-isolation --wheel-dir /wheels .


# All that changes seldom. Only wheels are installed and pip's cache is a mount, so there is no
# compiler and no rubbish here that copying an environment out of a builder would leave behind; and
# both targets stand on this one large layer instead of carrying a copy each.
FROM python AS runtime
RUN --mount=type=cache,target=/root/.cache/pip \
    --mount=type=bind,source=requirements.lock,target=/mnt/requirements.lock \
    pip install --require-hashes -r /mnt/requirements.lock
RUN useradd --uid 10001 --user-group --no-log-init --no-create-home --home-dir /tmp darkroom \
    && install --directory --owner=10001 --group=10001 /var/cache/darkroom
COPY --from=cache /cache /opt/darkroom/cache
COPY --chmod=444 docker/healthcheck.py /opt/darkroom/
LABEL org.opencontainers.image.title="darkroom" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0"
# 0.0.0.0 is the container's own network: who may reach it is decided where the port is published.
# HOME is writable under a read-only root because /tmp is; what should outlive the container, such as
# kernels compiled at a start, goes to /var/cache/darkroom, where docker-compose.yml mounts a volume.
ENV PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HOME=/tmp \
    XDG_CACHE_HOME=/var/cache \
    DARKROOM_HOST=0.0.0.0 \
    DARKROOM_PORT=8000 \
    DARKROOM_WEIGHTS=imagenet1k_v1 \
    DARKROOM_CACHE_FOLDER=/opt/darkroom/cache
WORKDIR /opt/darkroom
EXPOSE 8000
# Healthy means ready: a canary inference passed lately. Docker restarts nobody for being unhealthy,
# so the strict question does no harm, and `up --wait` and `depends_on` want exactly its answer.
HEALTHCHECK --interval=10s --timeout=5s --retries=3 --start-period=120s --start-interval=2s \
    CMD ["python", "/opt/darkroom/healthcheck.py"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["darkroom"]
CMD ["serve"]


FROM runtime AS cpu
RUN --mount=type=bind,from=wheel,source=/wheels,target=/mnt \
    pip install --no-deps --no-index --no-cache-dir /mnt/*.whl
USER 10001:10001


FROM runtime AS gpu
RUN --mount=type=cache,target=/root/.cache/pip \
    --mount=type=bind,source=requirements-gpu.lock,target=/mnt/requirements-gpu.lock \
    pip install --require-hashes -r /mnt/requirements-gpu.lock
# What the Container Toolkit hands in: every GPU; CUDA, nvidia-smi and the decoders.
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility,video
RUN --mount=type=bind,from=wheel,source=/wheels,target=/mnt \
    pip install --no-deps --no-index --no-cache-dir /mnt/*.whl
# Kernels for the GPUs of every generation from Turing to Blackwell, into the folder that a worker looks
# into first. The compiler needs no GPU; without this a first start would spend 40 s of CPU time on it.
RUN ["darkroom", "kernels"]
USER 10001:10001
