# One stage per service: docker build --target gpu_worker .
# Each holds what its service imports, at the versions and hashes of requirements.lock.

FROM python:3.13-slim-bookworm AS base
ARG UV_VERSION=0.13.9
ARG UV_SHA256=d7f459fe4fd247d830351c75686d3996ace3c6f3f728eb0e85a30b7ada0cef19
RUN echo "uv==${UV_VERSION} --hash=sha256:${UV_SHA256}" >/tmp/uv.txt \
 && pip install --no-cache-dir --no-deps --require-hashes --requirement /tmp/uv.txt \
 && useradd --create-home --uid 10001 headrace
ENV PYTHONUNBUFFERED=1 \
    PYTHONPATH=/app/libs:/app \
    UV_NO_CACHE=1 \
    UV_SYSTEM_PYTHON=1
WORKDIR /app
COPY pyproject.toml requirements.lock ./
RUN uv pip install --constraint requirements.lock --requirement pyproject.toml

FROM base AS ingress
RUN uv pip install --constraint requirements.lock --requirement pyproject.toml \
    --extra ingress \
 && install --directory --owner 10001 /files
COPY libs libs
COPY schemas schemas
COPY services services
USER 10001
VOLUME /files
EXPOSE 8000
ENTRYPOINT ["python", "-m", "services.ingress"]
CMD ["--slot", "0"]

FROM base AS batch_former
COPY libs libs
COPY schemas schemas
COPY services services
USER 10001
ENTRYPOINT ["python", "-m", "services.batch_former"]
CMD ["--slot", "0"]

FROM base AS gpu_worker
RUN uv pip install --constraint requirements.lock --requirement pyproject.toml \
    --extra worker
COPY libs libs
COPY schemas schemas
COPY services services
USER 10001
VOLUME /models
ENTRYPOINT ["python", "-m", "services.gpu_worker"]
CMD ["--slot", "0"]

FROM base AS ctl
RUN uv pip install --constraint requirements.lock --requirement pyproject.toml \
    --extra ctl
COPY libs libs
COPY schemas schemas
COPY services services
USER 10001
ENTRYPOINT ["python", "-m", "services.ctl"]
