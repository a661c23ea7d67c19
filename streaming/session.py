"""The Spark session of the job: quiet, on loopback where it is local, with its state in RocksDB."""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidestaff.streaming.commands.exits import CommandError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession
    from tidestaff.streaming.settings import Settings

# By a name of pyspark's: what it says goes with what pyspark says.
log = logging.getLogger("pyspark.accumulators")

OLDEST_JAVA: Final = 17
NEWEST_JAVA: Final = 21
CONF: Final = Path(__file__).resolve().parent.parent / "conf"
_LEVELS: Final = {"debug": "debug", "info": "info", "warning": "warn", "error": "error"}
_STATE_STORE: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_KEPT_BATCHES: Final = 10
# Every batch saves all of the state anew. On a disk what is not needed any more goes at once, so
# that a checkpoint takes a few times the state; in a store that counts requests Spark's usual
# pace is cheaper.
_ON_DISK: Final = {
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.streaming.stateStore.maintenanceInterval": "2s",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "1",
    "spark.sql.streaming.stateStore.rocksdb.compactOnCommit": "true",
}
ARCHIVE: Final = "tidestaff_archive"


class JavaError(CommandError):
    """Spark needs a Java that is not there."""


class SessionError(CommandError):
    """Spark did not start."""


def start(settings: Settings, jars: Sequence[Path] = ()) -> SparkSession:
    """A new session, or one sentence why there is none."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # noqa: PLC0415 - slow
    from pyspark.errors import PySparkException  # noqa: PLC0415

    check_java()
    try:
        return _started(settings, jars)
    except (Py4JError, PySparkException) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        said = next((line for line in lines if "Exception: " in line), lines[0] if lines else "")
        raise SessionError(
            f"Spark did not start on {settings.spark.master}: {said[:300]}",
            f"see {settings.work / 'logs'}; correct spark.master or spark.conf",
        ) from None


def _started(settings: Settings, jars: Sequence[Path]) -> SparkSession:
    """What the JVM itself prints goes into the log directory too."""
    from pyspark import SparkContext  # noqa: PLC0415 - slow, and only needed here
    from pyspark.conf import SparkConf  # noqa: PLC0415
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415
    from pyspark.sql import SparkSession as Session  # noqa: PLC0415

    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if submitted:
        settings = _as_submitted(settings)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if is_local(settings.spark.master):
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    logs = settings.work / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    conf = SparkConf(loadDefaults=False)
    found = configuration(settings, jars)
    if not is_local(settings.spark.master) and not submitted:
        found = _with_archive(found, settings.work.resolve() / "tidestaff.zip")
    for key, value in found.items():
        conf.set(key, value)
    if submitted:
        # Under spark-submit there is a JVM already; it has taken its own configuration.
        return Session.builder.config(conf=conf).getOrCreate()
    with (logs / "jvm.log").open("ab") as said:
        # A session of its own: Ctrl-C is for this process, which then ends the JVM in good order.
        quiet = {"stdout": said, "stderr": said, "start_new_session": True}
        with _signals_later():
            gateway = launch_gateway(conf, quiet)  # type: ignore[no-untyped-call]
    on_ctrl_c = signal.getsignal(signal.SIGINT)
    context = SparkContext(conf=conf, gateway=gateway)
    if threading.current_thread() is threading.main_thread():
        # A context takes Ctrl-C for itself, and its handler fails once the context has stopped.
        signal.signal(signal.SIGINT, on_ctrl_c)
    # Where the JVM dies, it would print a traceback over the monitor's own words.
    server = context._accumulatorServer  # noqa: SLF001 - no other way
    server.handle_error = lambda *_: log.exception("a connection broke")  # type: ignore[method-assign]
    return Session(context)


def is_gone(spark: SparkSession, within_s: float = 0.0) -> bool:
    """Whether the JVM that was started for the session is not there any more. Its connections
    break a moment before it is: whoever saw that gives it some time."""
    jvm = getattr(spark.sparkContext._gateway, "proc", None)  # noqa: SLF001 - no other way
    if jvm is None:
        return False
    try:
        jvm.wait(within_s)
    except subprocess.TimeoutExpired:
        return False
    return True


@contextmanager
def quiet_connections(logs: Path) -> Iterator[None]:
    """What py4j says of connections that break goes where Spark's own log is, not on the screen."""
    logs.mkdir(parents=True, exist_ok=True)
    kept = logging.FileHandler(logs / "py4j.log", encoding="utf-8", delay=True)
    kept.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    kept.addFilter(_of_py4j)
    shown = logging.StreamHandler(sys.stderr)
    shown.setLevel(logging.WARNING)
    shown.addFilter(lambda record: not _of_py4j(record))
    handlers = (kept, shown)
    for handler in handlers:
        logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        for handler in handlers:
            logging.getLogger().removeHandler(handler)
            handler.close()


def _of_py4j(record: logging.LogRecord) -> bool:
    """It uses the root logger, too."""
    return record.name == "root" or record.name.startswith(("py4j", "pyspark"))


@contextmanager
def _signals_later() -> Iterator[None]:
    """A JVM whose launcher goes before it has told its port never ends: who is told to stop then
    does so when the JVM is up, a few seconds later."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    told = (signal.SIGINT, signal.SIGTERM)
    before = {each: signal.signal(each, lambda number, _: received.append(number)) for each in told}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        # Also where the JVM did not start: it may have been told to stop with the rest.
        if received:
            signal.raise_signal(received[0])


def _as_submitted(settings: Settings) -> Settings:
    """The master of spark-submit counts unless the configuration names another: nobody who submits
    to a cluster wants all of it on the driver."""
    from pyspark import SparkContext  # noqa: PLC0415 - slow
    from pyspark.conf import SparkConf  # noqa: PLC0415

    if settings.spark.master != type(settings.spark)().master:
        return settings
    SparkContext._ensure_initialized()  # noqa: SLF001 - no other way
    master = SparkConf().get("spark.master") or settings.spark.master
    spark = settings.spark.model_copy(update={"master": master})
    return settings.model_copy(update={"spark": spark})


def configuration(settings: Settings, jars: Sequence[Path] = ()) -> dict[str, str]:
    """Everything that is set; `spark.conf` of the configuration has the last word."""
    spark = settings.spark
    logs = (settings.work / "logs").resolve()
    java = [
        f"-Dlog4j2.configurationFile={(CONF / 'log4j2.properties').as_uri()}",
        f"-Dtidestaff.logs={logs}",
        f"-Dtidestaff.level={_LEVELS[settings.log_level]}",
        # Spark matches long errors with a recursive pattern.
        "-Xss4m",
        *(["-XX:TieredStopAtLevel=1"] if spark.quick_start else []),
        "-XX:+UseSerialGC" if is_local(spark.master) else "-XX:+UseG1GC",
    ]
    found = {
        "spark.app.name": "tidestaff",
        "spark.master": spark.master,
        "spark.driver.memory": spark.driver_memory,
        "spark.driver.extraJavaOptions": " ".join(java),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(shuffle_partitions(settings)),
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.stateStore.providerClass": _STATE_STORE,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.minBatchesToRetain": str(_KEPT_BATCHES),
        "spark.sql.streaming.stopTimeout": "10s",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.python.daemon.module": "tidestaff.streaming.worker_daemon",
        "spark.cleaner.periodicGC.interval": "10min",
        "spark.sql.warehouse.dir": str((settings.work / "spark" / "warehouse").resolve()),
    }
    if is_local(spark.master):
        found |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": str((settings.work / "spark").resolve()),
        }
    if settings.checkpoint_dir is None:
        found |= _ON_DISK
    if jars:
        found["spark.jars"] = ",".join(str(jar.resolve()) for jar in jars)
    return found | {key: _text(value) for key, value in spark.conf.items()}


def _with_archive(found: dict[str, str], archive: Path) -> dict[str, str]:
    """Executors get this very tidestaff, whatever is installed there."""
    from tidestaff.streaming.commands.package import pack  # noqa: PLC0415 - only for a cluster

    if "spark.archives" in found:
        return found
    pack(archive)
    return {
        "spark.archives": f"{archive}#{ARCHIVE}",
        "spark.executorEnv.PYTHONPATH": ARCHIVE,
        **found,
    }


def is_local(master: str) -> bool:
    return master == "local" or master.startswith("local[")


def shuffle_partitions(settings: Settings) -> int:
    """As many tasks as there are cores, and never more than there are buckets to judge."""
    asked = settings.spark.shuffle_partitions
    if asked is not None:
        return asked
    match = re.fullmatch(r"local\[(\d+|\*)\]", settings.spark.master)
    cores = os.cpu_count() or 1
    if match is not None and match[1] != "*":
        cores = int(match[1])
    elif settings.spark.master == "local":
        cores = 1
    return max(1, min(cores, settings.operator.buckets))


def check_java() -> None:
    """Spark 4 runs on Java 17 or 21: said in one sentence instead of a page of its own."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    wanted = f"Java {OLDEST_JAVA} or {NEWEST_JAVA}"
    if program is None or not Path(program).is_file():
        where = f"JAVA_HOME is {home}, but {program} is not there" if home else "there is no java"
        raise JavaError(f"Spark needs {wanted}, and {where}: install it, or set JAVA_HOME")
    said = subprocess.run(  # noqa: S603 - the java Spark itself would start
        [program, "-version"], capture_output=True, text=True, check=False
    )
    match = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    if match is None:
        raise JavaError(f"{program} does not tell its version: Spark needs {wanted}")
    if int(match[1]) < OLDEST_JAVA:
        raise JavaError(
            f"Spark needs {wanted}, and {program} is Java {match[1]}: install it, or set JAVA_HOME"
        )


def _text(value: str | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
