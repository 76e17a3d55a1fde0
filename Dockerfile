# Darkroom as an image, targets `cpu` and `gpu` (the default). docs/deploy.md tells how to run it.
# Needs Docker 25 or newer (BuildKit). There is no `# syntax=` line on purpose: a build without a
# network could not fetch the frontend that it names.

# Bookworm's glibc is new enough for every wheel in the lock files. The digest is that of the index
# of all platforms; docs/deploy.md names the command that finds the digest of another tag. An
# nvidia/cuda base would add gigabytes of a second CUDA that no process loads: torch's wheels bring
# CUDA 12.8, and CuPy loads the same copies. No image contains the driver: the NVIDIA Container Toolkit
# mounts that of the host.
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm@sha256:65a93d69fa75478d554f4ad27c85c1e69fa184956261b4301ebaf6dbb0a3543d
# Weights of the image: imagenet1k_v1, which the build downloads, or bundled (10 classes, no download).
ARG WEIGHTS=imagenet1k_v1


# A folder that contains the file can replace this stage: --build-context weights=FOLDER
FROM scratch AS weights
ADD --checksum=sha256:f37072fd47e89c5e827621c5baffa7500819f7896bbacec160b1a16c560e07ec \
    https://download.pytorch.org/models/resnet18-f37072fd.pth /


FROM ${PYTHON_IMAGE} AS python
ENV PIP_CACHE_DIR=/root/.cache/pip \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_ONLY_BINARY=:all: \
    PIP_ROOT_USER_ACTION=ignore


# The cache folder as the service expects it. The digest is checked again, because a folder given by
# --build-context has not passed through ADD.
FROM python AS cache-imagenet1k_v1
WORKDIR /cache/weights
RUN --mount=type=bind,from=weights,target=/mnt \
    echo "f37072fd47e89c5e827621c5baffa7500819f7896bbacec160b1a16c560e07ec  resnet18-f37072fd.pth" \
        > /tmp/SHA256SUMS \
    && install --mode=444 /mnt/resnet18-f37072fd.pth . \
    && sha256sum --check --strict /tmp/SHA256SUMS


# Darkroom's wheel contains the bundled weights, so that this cache folder starts empty.
FROM python AS cache-bundled
WORKDIR /cache/weights


# hadolint ignore=DL3006
FROM cache-${WEIGHTS} AS cache


# Darkroom's own wheel, built by a locked hatchling. The secret `pip` is a pip.conf for an index of
# your own: unlike a build argument it stays out of every layer and of the image's history.
FROM python AS wheel
WORKDIR /src
COPY docker/requirements-build.lock ./
RUN --mount=type=cache,target=/root/.cache/pip \
    --mount=type=secret,id=pip,target=/etc/pip.conf \
    pip install --require-hashes -r requirements-build.lock
COPY pyproject.toml README.md LICENSE ./
COPY app app
COPY clients/python/src clients/python/src
COPY darkroom darkroom
COPY models models
COPY workers workers
RUN pip wheel --no-deps --no-index --no-build-isolation --wheel-dir /wheels .


# What both images share and what changes seldom. Packages follow in a layer of each target.
FROM python AS runtime
RUN useradd --uid 10001 --user-group --no-log-init --no-create-home --home-dir /tmp darkroom \
    && install --directory --owner=10001 --group=10001 /var/cache/darkroom \
    && install --directory --owner=10001 --group=10001 --mode=700 /var/lib/darkroom
COPY --from=cache /cache /opt/darkroom/cache
# The extras grpc, otel, parquet, postgres and storage: 232 MB, of which PyArrow has 176.
RUN --mount=type=cache,target=/root/.cache/pip \
    --mount=type=secret,id=pip,target=/etc/pip.conf \
    --mount=type=bind,source=requirements-extras.lock,target=/mnt/requirements-extras.lock \
    pip install --require-hashes -r /mnt/requirements-extras.lock
ARG WEIGHTS
LABEL org.opencontainers.image.title="darkroom" \
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
    DARKROOM_WEIGHTS=${WEIGHTS} \
    DARKROOM_CACHE_FOLDER=/opt/darkroom/cache
WORKDIR /opt/darkroom
EXPOSE 8000
# Healthy means ready: a canary inference passed lately. Docker does not restart an unhealthy container,
# so the strict question does no harm, and `up --wait` and `depends_on` want exactly its answer.
HEALTHCHECK --interval=10s --timeout=5s --retries=3 --start-period=120s --start-interval=2s \
    CMD ["python", "/opt/darkroom/healthcheck.py"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["darkroom"]
CMD ["serve"]


FROM runtime AS cpu
# PyTorch's own index has wheels without CUDA. Every file must have a hash of the lock file, wherever
# it comes from. An empty TORCH_INDEX leaves only pip's own indexes, and CPU_LOCK=requirements.lock
# installs the wheel of the package index, which needs 6 GB of CUDA libraries on x86-64.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ARG CPU_LOCK=requirements-cpu.lock
RUN --mount=type=cache,target=/root/.cache/pip \
    --mount=type=secret,id=pip,target=/etc/pip.conf \
    --mount=type=bind,source=requirements-cpu.lock,target=/mnt/requirements-cpu.lock \
    --mount=type=bind,source=requirements.lock,target=/mnt/requirements.lock \
    pip install --require-hashes ${TORCH_INDEX:+--extra-index-url ${TORCH_INDEX}} -r "/mnt/${CPU_LOCK}"
COPY --chmod=444 docker/healthcheck.py /opt/darkroom/
RUN --mount=type=bind,from=wheel,source=/wheels,target=/mnt \
    pip install --no-deps --no-index --no-cache-dir /mnt/*.whl
LABEL org.opencontainers.image.version="0.1.0"
USER 10001:10001


FROM runtime AS gpu
RUN --mount=type=cache,target=/root/.cache/pip \
    --mount=type=secret,id=pip,target=/etc/pip.conf \
    --mount=type=bind,source=requirements-gpu.lock,target=/mnt/requirements-gpu.lock \
    pip install --require-hashes -r /mnt/requirements-gpu.lock
# The Container Toolkit mounts what these ask for: every GPU; CUDA, nvidia-smi and the decoders.
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility,video
COPY --chmod=444 docker/healthcheck.py /opt/darkroom/
RUN --mount=type=bind,from=wheel,source=/wheels,target=/mnt \
    pip install --no-deps --no-index --no-cache-dir /mnt/*.whl
# Kernels for the GPUs of every generation from Turing to Blackwell, into the folder that a worker looks
# into first. The compiler needs no GPU; without this a first start would spend 40 s of CPU time on it.
RUN ["darkroom", "kernels"]
LABEL org.opencontainers.image.version="0.1.0"
USER 10001:10001
