# One image, three roles: `clew serve` (the default), `clew worker`, `clew migrate`.
# A project goes on top: FROM clew, then COPY . /app, where langgraph.json or clew.yaml is read.

FROM python:3.13-slim AS build
ARG EXTRAS=postgres,documents,openai,anthropic,mcp,oidc,workers
WORKDIR /src
COPY pyproject.toml constraints.txt package.json package-lock.json README.md LICENSE ./
COPY tools tools
COPY src src
RUN python -m venv /opt/clew \
 && /opt/clew/bin/pip install --no-cache-dir --disable-pip-version-check -c constraints.txt ".[${EXTRAS}]"

FROM python:3.13-slim
COPY --from=build /opt/clew /opt/clew
# A number, so that Kubernetes can check that it is not root.
RUN install -d -o 10001 -g 10001 /app
ENV PATH=/opt/clew/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    CLEW_HOST=0.0.0.0
WORKDIR /app
USER 10001:10001
EXPOSE 8124
STOPSIGNAL SIGTERM
# For `clew serve`; switch it off for the other roles, which listen to nothing.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
  CMD ["python", "-c", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:' + os.environ.get('CLEW_PORT', '8124') + '/ready', timeout=4)"]
ENTRYPOINT ["clew"]
CMD ["serve"]
