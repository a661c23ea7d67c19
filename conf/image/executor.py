"""Starts an executor of Spark on Kubernetes, from the variables Spark puts into its pod."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

BACKEND: Final = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
ARGUMENTS: Final = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
SECRET_FILES: Final = (
    "-Dspark.authenticate.secret.file=",
    "-Dspark.authenticate.secret.executor.file=",
)
_OPTION: Final = re.compile(r"SPARK_JAVA_OPT_(\d+)")


def command(environment: Mapping[str, str], jars: Path, java: str) -> list[str]:
    """The JVM of an executor; a variable that is missing is named."""
    wanted = {*ARGUMENTS.values(), "SPARK_EXECUTOR_MEMORY"}
    missing = sorted(name for name in wanted if name not in environment)
    if missing:
        sys.exit(f"executor: {', '.join(missing)} not set: Spark's driver starts this, nobody else")
    numbered = [
        (int(match[1]), value)
        for name, value in environment.items()
        if (match := _OPTION.fullmatch(name)) is not None
    ]
    options = [value for _, value in sorted(numbered)]
    if any(each.startswith(SECRET_FILES) for each in options):
        # Spark reads such a file where it knows itself on Kubernetes, which an executor is not told
        # before it has asked the driver; and to ask the driver it needs the secret.
        options.append("-Dspark.master=k8s://driver")
    memory = environment["SPARK_EXECUTOR_MEMORY"]
    extra = environment.get("SPARK_EXTRA_CLASSPATH")
    return [
        java,
        *options,
        f"-Xms{memory}",
        f"-Xmx{memory}",
        "-cp",
        ":".join([*([extra] if extra else []), f"{jars}/*"]),
        BACKEND,
        *(word for name, key in ARGUMENTS.items() for word in (name, environment[key])),
    ]


def main() -> None:
    import pyspark  # noqa: PLC0415 - only where it is installed

    home = Path(str(pyspark.__file__)).parent
    given = os.environ.get("JAVA_HOME")
    java = f"{given}/bin/java" if given else shutil.which("java") or "java"
    os.environ.setdefault("SPARK_HOME", str(home))
    words = command(os.environ, home / "jars", java)
    os.execv(words[0], words)  # noqa: S606 - Spark's own command, without a shell


if __name__ == "__main__":
    main()
