# One image for the job, its executors, collectors, the agent and the page.
#
#   make image                                            a published Debian, packages from the registries
#   make image BASE_IMAGE=registry.internal/java-python:12 CLOSED=1     a base of your own, no network
#
# CLOSED=1 takes the packages and jars that `make setup` has verified by their hashes, instead of
# fetching them anew; the base must then have Java 17, Python of the same version, libnss-wrapper.

# A point release, not a moving tag. The release workflow adds the digest it was built on.
ARG BASE_IMAGE=debian:12.11-slim

FROM ${BASE_IMAGE} AS system
USER root
# Only what is missing, so that a base that has it all needs no Debian archive.
RUN set -eu; \
    if ! command -v java >/dev/null || ! python3 -c 'import ensurepip' 2>/dev/null \
       || ! ls /usr/lib/*/libnss_wrapper.so >/dev/null 2>&1; then \
      apt-get update -qq; \
      apt-get install -y -qq --no-install-recommends \
        openjdk-17-jre-headless ca-certificates-java python3 python3-venv libnss-wrapper; \
      rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb /var/log/*; \
    fi

FROM system AS build
COPY requirements.runtime.lock /src/
# Tidestaff's own wheel and, for a closed build, packages and jars: tests/deploy/image_inputs.py.
COPY build/image/ /inputs/
RUN set -eu; python3 -m venv /opt/tidestaff/venv; cd /opt/tidestaff; \
    site="$(echo /opt/tidestaff/venv/lib/python3*/site-packages)"; \
    if [ -d /inputs/site ]; then \
      test "$(cat /inputs/python-version)" = "$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')" \
        || { echo "the base image has another Python than $(cat /inputs/python-version), for which the packages are: take another base" >&2; exit 1; }; \
      cp -a /inputs/site/. "$site/"; cp -a /inputs/bin/. venv/bin/; \
    else \
      venv/bin/python -m pip install --quiet --no-cache-dir --no-compile --require-hashes -r /src/requirements.runtime.lock; \
    fi; \
    venv/bin/python -m pip install --quiet --no-cache-dir --no-compile --no-deps --no-index /inputs/tidestaff-*.whl; \
    mkdir jars; \
    if [ -d /inputs/jars ]; then cp /inputs/jars/*.jar jars/; \
    else XDG_CACHE_HOME=/tmp/cache venv/bin/python -m tidestaff.streaming.jars; cp /tmp/cache/tidestaff/jars/*.jar jars/; fi; \
    TIDESTAFF_JARS_DIR=/opt/tidestaff/jars venv/bin/python -m tidestaff.streaming.jars; \
    cp "$site/tidestaff/conf/image/entrypoint.sh" "$site/tidestaff/conf/image/executor.py" .; \
    venv/bin/tidestaff package -o /tmp/tidestaff.zip; cp /tmp/tidestaff_main.py .; \
    rm -rf "$site"/pip "$site"/pip-*.dist-info "$site"/setuptools "$site"/setuptools-*.dist-info \
      "$site/_distutils_hack" "$site/distutils-precedence.pth" "$site/pkg_resources" venv/bin/pip*; \
    venv/bin/python "$site/tidestaff/conf/image/inventory.py" --jars jars --sbom sbom.cdx.json --licences LICENCES.txt; \
    rm -rf "$site/pyspark/examples" "$site/pyspark/data" "$site/pyspark/sbin" "$site/pyarrow/include"; \
    find "$site" -depth -type d \( -name tests -o -name __pycache__ \) -exec rm -rf {} +; \
    chmod 0755 entrypoint.sh; chmod -R a+rX,go-w /opt/tidestaff

FROM system
LABEL org.opencontainers.image.title="tidestaff" \
      org.opencontainers.image.description="Replica-consistency monitor for Apache Kafka" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/tidestaff /opt/tidestaff
RUN set -eu; echo 'tidestaff:x:185:185::/tmp:/usr/sbin/nologin' >> /etc/passwd; \
    echo 'tidestaff:x:185:' >> /etc/group; mkdir -p /var/lib/tidestaff /var/tmp/tidestaff; \
    chown 185:0 /var/lib/tidestaff /var/tmp/tidestaff; chmod 0775 /var/lib/tidestaff /var/tmp/tidestaff
ENV PATH=/opt/tidestaff/venv/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HOME=/tmp \
    TIDESTAFF_JARS_DIR=/opt/tidestaff/jars \
    PYSPARK_PYTHON=/opt/tidestaff/venv/bin/python \
    PYSPARK_DRIVER_PYTHON=/opt/tidestaff/venv/bin/python
USER 185:185
WORKDIR /var/tmp/tidestaff
EXPOSE 9464 8470 8471
ENTRYPOINT ["/opt/tidestaff/entrypoint.sh"]
CMD ["--help"]
