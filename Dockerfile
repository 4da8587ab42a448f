# A hub in a container: first the package is built and installed, then only what was installed is kept.
#
#   docker build --tag cloister-hub .
#   docker compose up            # hub, PostgreSQL and two workers: see compose.yaml

FROM python:3.11-slim-bookworm AS build
WORKDIR /build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN python -m venv /cloister && /cloister/bin/pip install --constraint constraints.txt '.[hub,postgres]'

FROM python:3.11-slim-bookworm
# Nobody in particular, with a number that volumes can be given to.
RUN groupadd --gid 10001 cloister \
 && useradd --uid 10001 --gid cloister --no-create-home --shell /usr/sbin/nologin cloister \
 && install --directory --owner cloister --group cloister --mode 0700 /var/lib/cloister /var/lib/cloister-head
COPY --from=build /cloister /cloister
ENV PATH=/cloister/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    CLOISTER_FOLDER=/var/lib/cloister \
    CLOISTER_HOST=0.0.0.0 \
    CLOISTER_PORT=8400
USER cloister
WORKDIR /var/lib/cloister
VOLUME ["/var/lib/cloister", "/var/lib/cloister-head"]
EXPOSE 8400
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=5s --start-period=30s --retries=3 \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8400/health', timeout=4)"]
ENTRYPOINT ["cloister", "hub"]
CMD ["serve"]
