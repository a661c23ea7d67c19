"""What the image is made of, as far as no engine is needed to tell."""

from __future__ import annotations

import importlib.util
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import jsonschema
import pyspark
import pytest
from referencing import Registry
from referencing.jsonschema import DRAFT7

from tests.deploy import image_inputs

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
JARS = Path(str(pyspark.__file__)).parent / "jars"
SET = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@driver:7078",
    "SPARK_EXECUTOR_ID": "1",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "1g",
    "SPARK_APPLICATION_ID": "spark-app",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.9",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "executor-1",
}


def part(name: str) -> Any:
    """A file of conf/image as a module: it runs in the image, outside the package."""
    path = ROOT / "conf" / "image" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"image_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_executor_is_started_with_what_its_pod_says() -> None:
    options = {"SPARK_JAVA_OPT_10": "-Dten", "SPARK_JAVA_OPT_9": "-Dnine"}
    words = part("executor").command({**SET, **options}, Path("/jars"), "java")
    assert words[:5] == ["java", "-Dnine", "-Dten", "-Xms1g", "-Xmx1g"]
    assert words[5:7] == ["-cp", "/jars/*"]
    asked = dict(zip(words[8::2], words[9::2], strict=True))
    assert asked["--driver-url"] == SET["SPARK_DRIVER_URL"]
    assert asked["--hostname"] == "10.0.0.9"


@pytest.mark.parametrize("which", ["file", "executor.file"])
def test_an_executor_that_is_to_read_its_secret_from_a_file_knows_it_is_on_kubernetes(
    which: str,
) -> None:
    """Else Spark does not look into the file; tests/helm/test_client_mode.py runs it."""
    options = {"SPARK_JAVA_OPT_0": f"-Dspark.authenticate.secret.{which}=/secret"}
    words = part("executor").command({**SET, **options}, Path("/jars"), "java")
    assert "-Dspark.master=k8s://driver" in words
    assert "-Dspark.master=k8s://driver" not in part("executor").command(SET, Path("/j"), "java")


def test_an_executor_that_spark_did_not_start_says_what_is_missing() -> None:
    with pytest.raises(SystemExit, match=r"SPARK_DRIVER_URL.* not set"):
        part("executor").command({}, Path("/jars"), "java")


def test_the_class_an_executor_runs_is_in_the_spark_that_is_locked() -> None:
    (jar,) = JARS.glob("spark-kubernetes_*.jar")
    name = part("executor").BACKEND.replace(".", "/")
    with zipfile.ZipFile(jar) as archive:
        assert f"{name}.class" in archive.namelist()


def test_the_image_has_a_fixed_base_no_root_and_no_build_tools() -> None:
    stages = re.findall(r"^FROM (\S+)(?: AS (\w+))?$", DOCKERFILE, re.MULTILINE)
    assert stages == [("${BASE_IMAGE}", "system"), ("system", "build"), ("system", "")]
    base = re.search(r"^ARG BASE_IMAGE=(\S+)$", DOCKERFILE, re.MULTILINE)
    assert base is not None
    assert re.search(r":\d[\w.-]+$", base[1]), "a version, not a moving tag"
    assert re.findall(r"^USER (\S+)$", DOCKERFILE, re.MULTILINE)[-1] == "185:185"
    last = DOCKERFILE.rpartition("FROM system\n")[2]
    assert last
    assert "pip" not in last
    assert not re.search(r"\b(gcc|make|curl|wget|git)\b", DOCKERFILE)


def test_the_runtime_lock_pins_what_the_whole_lock_pins_with_hashes() -> None:
    def pins(name: str) -> set[str]:
        text = (ROOT / name).read_text(encoding="utf-8")
        return set(re.findall(r"^([A-Za-z0-9._-]+==[^\s;\\]+)", text, re.MULTILINE))

    runtime, whole = pins("requirements.runtime.lock"), pins("requirements.lock")
    assert runtime < whole, "run 'make lock'"
    assert not any(pin.startswith("pytest") for pin in runtime)
    for block in re.split(r"\n(?=\S)", (ROOT / "requirements.runtime.lock").read_text()):
        if "==" in block:
            assert "--hash=sha256:" in block, block.splitlines()[0]


def test_every_runtime_package_is_one_that_was_installed_from_the_lock() -> None:
    names = {package.metadata["Name"].lower() for package in image_inputs.runtime_packages()}
    assert {"pyspark", "pandas", "kafka-python", "pydantic"} <= names
    assert "pytest" not in names


def test_the_bill_of_materials_names_each_component_once_with_a_licence_or_its_lack(
    tmp_path: Path,
) -> None:
    # Hashing all of Spark takes seconds: three of its jars do.
    for path in sorted(JARS.glob("kubernetes-model-*.jar"))[:3]:
        (tmp_path / path.name).symlink_to(path)
    inventory = part("inventory")
    found = inventory.bill([*inventory.python_packages(), *inventory.jars([tmp_path])])
    assert found["bomFormat"] == "CycloneDX"
    assert found["specVersion"] == "1.5"
    purls = [each["purl"] for each in found["components"]]
    assert len(set(purls)) == len(purls)
    named = {each["name"]: each for each in found["components"]}
    assert named["pyspark"]["licenses"]
    jar = next(each for each in found["components"] if each["purl"].startswith("pkg:generic/"))
    assert jar["hashes"][0]["alg"] == "SHA-256"
    assert json.loads(json.dumps(found)) == found
    assert len(inventory.licences(found).splitlines()) == len(found["components"]) + 1


def test_the_bill_of_materials_is_one_by_cyclonedx_own_schema(tmp_path: Path) -> None:
    """Which the library that pip-audit uses carries."""
    library = pytest.importorskip("cyclonedx.schema", reason="run 'make setup'")
    (jar,) = JARS.glob("spark-kubernetes_*.jar")
    (tmp_path / jar.name).symlink_to(jar)
    inventory = part("inventory")
    found = inventory.bill([*inventory.python_packages(), *inventory.jars([tmp_path])])
    folder = Path(str(library.__file__)).parent / "_res"
    schemas = {path.name: json.loads(path.read_text()) for path in folder.glob("*.schema.json")}
    known = [(each["$id"], DRAFT7.create_resource(each)) for each in schemas.values()]
    own = schemas[f"bom-{found['specVersion']}.SNAPSHOT.schema.json"]
    check = jsonschema.Draft7Validator(own, registry=Registry().with_resources(known))
    assert list(check.iter_errors(found)) == []
    assert not check.is_valid({**found, "misspelt": 1})
