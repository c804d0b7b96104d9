# nco-bench in a container: `docker build --target cpu .` or `--target cuda`; see docs/devices.md.
# Nothing but Docker's official Python image, Debian's packages and those of PyPI. torch brings CUDA's libraries along; the
# driver is the host's. TORCH_INDEX names another package index for torch, such as that of its builds without CUDA.

ARG PYTHON=3.12-slim-bookworm

FROM python:${PYTHON} AS wheels
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY nco_bench nco_bench
COPY weights weights
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels . ./weights

FROM python:${PYTHON} AS base
ARG TORCH=torch==2.13.0
ARG TORCH_INDEX=
ARG EXTRAS=neural,classical,plots,html,slurm,parquet,weights
ENV PYTHONUNBUFFERED=1 NUMBA_CACHE_DIR=/tmp/numba
COPY --from=wheels /wheels /wheels
# hadolint ignore=DL3013
RUN pip install --no-cache-dir ${TORCH_INDEX:+--index-url "${TORCH_INDEX}"} "${TORCH}" \
    && pip install --no-cache-dir --find-links /wheels "nco-bench[${EXTRAS}]" \
    && useradd --create-home --uid 1000 nco
WORKDIR /work
ENTRYPOINT ["nco-bench"]
CMD ["--help"]

# Compiled attention (Triton) needs a C compiler at run time.
FROM base AS cuda
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
USER 1000

FROM base AS cpu
USER 1000
