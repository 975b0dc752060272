# The image of captf-manager. It also holds /runner, which Jobs copy into the images of their modules.

# The runner, as one static executable. Built with Debian's own interpreter, which can be made independent of
# the libraries around it.
FROM debian:bookworm-slim AS runner
RUN apt-get update \
 && apt-get install --yes --no-install-recommends binutils ca-certificates libc-bin libpython3.11 patchelf python3 python3-venv \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY hack hack
COPY src src
RUN python3 -m hack.runner --output /runner

# The manager, in a virtual environment with hashed, locked versions and nothing of the tests.
FROM python:3.11-slim-bookworm AS manager
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /source
COPY requirements.txt .
RUN python -m venv /build && /build/bin/pip install --require-hashes -r requirements.txt
COPY hack/manager-requirements.txt hack/manager-requirements.txt
RUN python -m venv /opt/captf && /opt/captf/bin/pip install --require-hashes -r hack/manager-requirements.txt
COPY LICENSE README.md pyproject.toml ./
COPY src src
RUN /build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
 && /opt/captf/bin/pip install --no-deps --no-index /wheels/captf-*.whl \
 && /opt/captf/bin/pip uninstall --yes pip setuptools

FROM python:3.11-slim-bookworm
ARG COMMIT=unknown
LABEL org.opencontainers.image.title="captf-manager" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision="${COMMIT}"
COPY --from=runner /runner /runner
COPY --from=manager /opt/captf /opt/captf
# Nothing is written at run time: the root file system is read-only.
ENV PATH=/opt/captf/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    CAPTF_COMMIT="${COMMIT}"
USER 65532:65532
ENTRYPOINT ["captf-manager"]
