"""What the image is made of: a CycloneDX bill of materials and a list of licences.

Python packages as they are installed, jars with their hashes (Spark's own and those of the lock
file), Debian packages where dpkg is. The same inputs give the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any, Final

UNSTATED: Final = "not stated in the file"
_JAR: Final = re.compile(r"(.+?)-(\d[\w.+-]*)\.jar")

Component = dict[str, Any]


def component(name: str, version: str, purl: str, licence: str, **more: Any) -> Component:
    stated = [] if licence == UNSTATED else [{"license": {"name": licence}}]
    found = {"type": "library", "name": name, "version": version, "purl": purl, "bom-ref": purl}
    return {**found, **({"licenses": stated} if stated else {}), **more}


def python_packages() -> list[Component]:
    return [
        component(
            name := str(each.metadata["Name"]),
            each.version,
            f"pkg:pypi/{re.sub(r'[-_.]+', '-', name).lower()}@{each.version}",
            _python_licence(each.metadata),
        )
        for each in metadata.distributions()
    ]


def _python_licence(said: Any) -> str:
    classifiers = [
        line.rpartition(" :: ")[2]
        for line in said.get_all("Classifier") or ()
        if line.startswith("License ::")
    ]
    stated = said.get("License-Expression") or " and ".join(classifiers) or said.get("License")
    return str(stated).splitlines()[0][:100] if stated else UNSTATED


def jars(folders: list[Path]) -> list[Component]:
    found = []
    for path in sorted({path.name: path for f in folders for path in f.glob("*.jar")}.values()):
        match = _JAR.fullmatch(path.name)
        name, version = match.groups() if match else (path.stem, "unknown")
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        purl = f"pkg:generic/{name}@{version}?checksum=sha256:{digest}"
        hashes = [{"alg": "SHA-256", "content": digest}]
        found.append(component(name, version, purl, _jar_licence(path), hashes=hashes))
    return found


def _jar_licence(path: Path) -> str:
    with zipfile.ZipFile(path) as archive:
        try:
            text = archive.read("META-INF/MANIFEST.MF").decode("utf-8", "replace")
        except KeyError:
            text = ""
        names = {name.upper() for name in archive.namelist()}
        stated = re.search(r"^Bundle-License: (.+(?:\r?\n .+)*)", text, re.MULTILINE)
        if stated is not None:
            return re.sub(r"\r?\n ", "", stated[1]).strip()[:100]
        for name in archive.namelist():
            if name.upper() in ("META-INF/LICENSE", "META-INF/LICENSE.TXT"):
                head = archive.read(name)[:400].decode("utf-8", "replace")
                if "Apache License" in head:
                    return "Apache-2.0 (META-INF/LICENSE)"
                return next((line.strip() for line in head.splitlines() if line.strip()), UNSTATED)
    return "see META-INF/NOTICE" if "META-INF/NOTICE" in names else UNSTATED


def debian_packages() -> list[Component]:
    program = shutil.which("dpkg-query")
    if program is None:
        return []
    said = subprocess.run(  # noqa: S603 - the system's own list
        [program, "-W", "-f", "${Package} ${Version} ${Architecture}\n"],
        capture_output=True,
        text=True,
        check=True,
    )
    return [
        component(
            name,
            version,
            f"pkg:deb/debian/{name}@{version}?arch={architecture}",
            f"see /usr/share/doc/{name}/copyright",
        )
        for name, version, architecture in map(str.split, said.stdout.splitlines())
    ]


def bill(components: list[Component]) -> dict[str, Any]:
    try:
        version = metadata.version("tidestaff")
    except metadata.PackageNotFoundError:
        version = "unknown"
    own = {"type": "application", "name": "tidestaff", "version": version}
    kept = {each["purl"]: each for each in components}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {**own, "bom-ref": "tidestaff"}},
        "components": [kept[purl] for purl in sorted(kept)],
    }


def licences(found: dict[str, Any]) -> str:
    rows = [
        f"{each['purl'].partition('?')[0]}  "
        f"{each.get('licenses', [{'license': {'name': UNSTATED}}])[0]['license']['name']}"
        for each in found["components"]
    ]
    return "\n".join(["tidestaff  Apache-2.0", *rows]) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jars", type=Path, action="append", default=[], help="a folder of jars")
    parser.add_argument("--sbom", type=Path, required=True)
    parser.add_argument("--licences", type=Path, required=True)
    options = parser.parse_args()
    import pyspark  # noqa: PLC0415 - only where it is installed

    folders = [Path(str(pyspark.__file__)).parent / "jars", *options.jars]
    found = bill([*python_packages(), *jars(folders), *debian_packages()])
    options.sbom.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    options.licences.write_text(licences(found), encoding="utf-8")
    print(f"{len(found['components'])} components in {options.sbom}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
