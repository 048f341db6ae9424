# The page and the commands in a container: an ordinary user, nothing written outside /data and /tmp, no network needed.
#
#   docker build -t mlci .
#   docker run --rm --read-only --tmpfs /tmp --network none -v "$PWD:/data" mlci score us2010 admissions.csv -o scores.csv
#   docker run --rm --read-only --tmpfs /tmp -p 127.0.0.1:8000:8000 mlci
FROM python:3.11-slim AS build
WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE NOTICE ./
COPY src ./src
RUN pip wheel --no-cache-dir --wheel-dir /wheels -c constraints.txt ".[excel,web]"

FROM python:3.11-slim
RUN useradd --create-home --uid 10001 mlci
COPY --from=build /wheels /wheels
# hadolint ignore=DL3013
RUN pip install --no-cache-dir --no-index --find-links /wheels "mlci[excel,web]"
USER 10001
WORKDIR /data
ENV MPLCONFIGDIR=/tmp/matplotlib PYTHONDONTWRITEBYTECODE=1
EXPOSE 8000
ENTRYPOINT ["mlci"]
CMD ["serve", "--host", "0.0.0.0"]
