"""A folder on whatever file system Spark knows, with the few things of a path that are needed.

Spark's JVM does the reading, with the jars, settings and credentials that the checkpoint itself is
written with, so nothing else has to know how to log in to an object store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class HadoopFolder:
    """Implements the checkpoint's Folder."""

    def __init__(self, spark: SparkSession, uri: str) -> None:
        self._spark, self.uri = spark, uri.rstrip("/")

    def __str__(self) -> str:
        return self.uri

    @property
    def name(self) -> str:
        return self.uri.rpartition("/")[2]

    def __truediv__(self, name: str) -> HadoopFolder:
        return HadoopFolder(self._spark, f"{self.uri}/{name}")

    def is_dir(self) -> bool:
        files, path = self._opened()
        return bool(files.exists(path)) and bool(files.getFileStatus(path).isDirectory())

    def iterdir(self) -> list[HadoopFolder]:
        files, path = self._opened()
        return [self / str(each.getPath().getName()) for each in files.listStatus(path)]

    def read_text(self, encoding: str) -> str:
        files, path = self._opened()
        if not files.exists(path):
            raise FileNotFoundError(self.uri)
        stream = files.open(path)
        try:
            return bytes(stream.readAllBytes()).decode(encoding)
        finally:
            stream.close()

    def with_name(self, name: str) -> HadoopFolder:
        return HadoopFolder(self._spark, f"{self.uri.rpartition('/')[0]}/{name}")

    def rename(self, target: HadoopFolder) -> None:
        files, path = self._opened()
        if not files.rename(path, target._opened()[1]):
            raise OSError(f"{self.uri} cannot be renamed to {target.uri}")

    def _opened(self) -> tuple[Any, Any]:
        context: Any = self._spark.sparkContext
        path = context._jvm.org.apache.hadoop.fs.Path(self.uri)  # noqa: SLF001 - no public way
        hadoop = context._jsc.hadoopConfiguration()  # noqa: SLF001
        return path.getFileSystem(hadoop), path
