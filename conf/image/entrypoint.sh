#!/bin/sh
# What the container runs: a command of tidestaff, or, where Spark on Kubernetes starts it, the
# driver of a submitted application or an executor.
set -eu

# A platform may give any user id. Java cannot log in to Hadoop's file systems as a nameless one.
if ! getent passwd "$(id -u)" >/dev/null 2>&1; then
  for library in /usr/lib/*/libnss_wrapper.so; do
    cp /etc/passwd /tmp/.passwd
    echo "tidestaff:x:$(id -u):$(id -g)::/tmp:/usr/sbin/nologin" >> /tmp/.passwd
    export LD_PRELOAD="$library" NSS_WRAPPER_PASSWD=/tmp/.passwd NSS_WRAPPER_GROUP=/etc/group
  done
fi

case "${1:-}" in
  driver)
    shift
    exec spark-submit --deploy-mode client \
      --conf "spark.driver.bindAddress=${SPARK_DRIVER_BIND_ADDRESS}" \
      --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=${SPARK_DRIVER_BIND_ADDRESS}" "$@"
    ;;
  executor)
    exec python /opt/tidestaff/executor.py
    ;;
  python | python3 | sh)
    exec "$@"
    ;;
  tidestaff)
    exec "$@"
    ;;
  *)
    exec tidestaff "$@"
    ;;
esac
