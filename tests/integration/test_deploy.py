"""What Clew is shipped with: image, compose file, Kubernetes manifests, systemd units. No image is built here."""

import configparser
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import typer
import yaml

from clew import __version__
from clew.cli import app
from tests.processes import ROOT, environment, serving

BASE = ROOT / "deploy/kubernetes/base"
KEDA = ROOT / "deploy/kubernetes/keda"
UNITS = sorted((ROOT / "deploy/systemd").iterdir())
KUBERNETES = "1.32"
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
SETTINGS = (ROOT / "docs/reference/settings.md").read_text()


def dockerfile() -> list[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in text.splitlines() if line]


def of(instruction: str) -> list[str]:
    return [rest for name, rest in dockerfile() if name == instruction]


def documents(folder: Path) -> list[dict[str, Any]]:
    files = [path for path in sorted(folder.glob("*.yaml")) if path.name != "kustomization.yaml"]
    return [one for path in files for one in yaml.safe_load_all(path.read_text())]


def find(folder: Path, kind: str) -> list[dict[str, Any]]:
    return [one for one in documents(folder) if one["kind"] == kind]


def pods() -> list[dict[str, Any]]:
    return [one["spec"]["template"] for one in documents(BASE) if "template" in one["spec"]]


def unit(path: Path) -> configparser.RawConfigParser:
    read = configparser.RawConfigParser(strict=False, delimiters=("=",))
    read.read_string(path.read_text())
    return read


def command_lines() -> Iterator[tuple[str, list[str]]]:
    """Every command line of `clew`, and where it is."""
    yield "Dockerfile", json.loads(of("CMD")[-1])
    for name, service in COMPOSE["services"].items():
        if name != "postgres":
            yield f"compose {name}", service["command"]
    for pod in pods():
        for container in pod["spec"]["containers"]:
            yield f"kubernetes {container['name']}", container["args"]
    for path in UNITS:
        yield path.name, shlex.split(unit(path)["Service"]["ExecStart"])[1:]


def variables() -> Iterator[tuple[str, str]]:
    """Every setting by its variable, and where it is."""
    for service in COMPOSE["services"].values():
        yield from (("compose", name) for name in service["environment"] if name.startswith("CLEW_"))
    settings = yaml.safe_load((BASE / "kustomization.yaml").read_text())["configMapGenerator"][0]["literals"]
    yield from (("kubernetes", one.partition("=")[0]) for one in settings)
    for path in UNITS:
        yield from (
            (path.name, name) for name in re.findall(r"^Environment=(\w+)=", path.read_text(), re.MULTILINE)
        )


@pytest.mark.parametrize(("where", "line"), [pytest.param(*one, id=one[0]) for one in command_lines()])
def test_commands_are_those_of_the_command_line(where: str, line: Sequence[str]) -> None:
    group = typer.main.get_command(app)
    commands: Mapping[str, Any] = group.commands  # type: ignore[attr-defined]
    if "worker" not in commands and ("worker" in line or "--no-runner" in line):
        pytest.skip("this build has no `clew worker`")
    name, *rest = line
    assert name in commands, where
    with commands[name].make_context(name, [*rest]):  # raises for an option that it does not have
        pass


@pytest.mark.parametrize(("where", "name"), sorted(set(variables())))
def test_variables_are_settings(where: str, name: str) -> None:
    if name == "CLEW_RUNNER_KIND" and "worker" not in typer.main.get_command(app).commands:  # type: ignore[attr-defined]
        pytest.skip("this build has no `clew worker`")
    assert f"`{name}`" in SETTINGS, where


class TestImage:
    def test_it_is_small_and_not_of_root(self) -> None:
        bases = of("FROM")
        assert len(bases) == 2, "what builds stays behind"
        assert all(":3.13-slim" in base for base in bases)
        ((user),) = of("USER")
        uid, _, gid = user.partition(":")
        assert int(uid) > 0
        assert int(gid) > 0
        assert dockerfile()[-2:] == [("ENTRYPOINT", '["clew"]'), ("CMD", '["serve"]')]

    def test_its_python_and_extras_are_those_of_the_package(self) -> None:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        assert "Programming Language :: Python :: 3.13" in project["classifiers"]
        extras = set(of("ARG")[0].removeprefix("EXTRAS=").split(","))
        assert extras - {"workers"} <= project["optional-dependencies"].keys()
        assert {"postgres", "workers"} <= extras

    def test_it_copies_what_is_there_and_nothing_local(self) -> None:
        copied = [one for rest in of("COPY") if "--from" not in rest for one in rest.split()[:-1]]
        assert [one for one in copied if not (ROOT / one).exists()] == []
        lines = [one for one in (ROOT / ".dockerignore").read_text().splitlines() if one[:1] not in ("", "#")]
        assert lines[0] == "**"
        assert sorted(one[1:] for one in lines if one.startswith("!")) == sorted(copied)
        for private in (".env", ".clew", ".git", ".venv"):
            assert not any(fnmatch(private, pattern) for pattern in copied)

    def test_its_health_check_asks_the_server(self, tmp_path: Path) -> None:
        ((check),) = of("HEALTHCHECK")
        _, *rest = json.loads(check.partition(" CMD ")[2])

        def ask(port: int) -> int:
            there = environment(tmp_path, CLEW_PORT=str(port))
            return subprocess.run(
                [sys.executable, *rest], env=there, capture_output=True, check=False
            ).returncode

        with serving(tmp_path) as server:
            assert ask(server.port) == 0
        assert ask(server.port) != 0


class TestCompose:
    def test_services_wait_for_the_migration(self) -> None:
        services = COMPOSE["services"]
        assert services["migrate"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
        for name in ("api", "worker"):
            assert services[name]["depends_on"]["migrate"]["condition"] == "service_completed_successfully"
        assert services["worker"]["deploy"]["replicas"] == 2

    def test_only_what_listens_has_a_health_check_and_a_port(self) -> None:
        services = COMPOSE["services"]
        assert [name for name, one in services.items() if "ports" in one] == ["api"]
        off = [name for name, one in services.items() if one.get("healthcheck") == {"disable": True}]
        assert sorted(off) == ["migrate", "worker"]

    def test_no_password_is_in_the_file(self) -> None:
        passwords = re.findall(
            r"(?:PASSWORD: |clew:)(\$\{[^}]*\}|\S+)@?", (ROOT / "compose.yaml").read_text()
        )
        assert passwords
        assert all(one.startswith("${CLEW_POSTGRES_PASSWORD:?") for one in passwords)


class TestKubernetes:
    @pytest.mark.parametrize("one", [pytest.param(one, id=one["kind"]) for one in documents(BASE)])
    def test_manifests_have_the_published_shape(self, one: dict[str, Any]) -> None:
        kubernetes_validate.validate(one, KUBERNETES, strict=True)

    def test_what_kustomize_makes_of_them_has_it_too(self, tmp_path: Path) -> None:
        program = shutil.which("kubectl")
        if program is None:
            pytest.skip("this machine has no kubectl")
        made = subprocess.run(
            [program, "kustomize", str(KEDA)],
            env=environment(tmp_path, KUBECONFIG="/dev/null"),
            capture_output=True,
            text=True,
            check=True,
        )
        rendered = [*yaml.safe_load_all(made.stdout)]
        for one in rendered:
            if one["kind"] != "ScaledObject":
                kubernetes_validate.validate(one, KUBERNETES, strict=True)
        deployments = {
            one["metadata"]["name"]: one["spec"] for one in rendered if one["kind"] == "Deployment"
        }
        # Who scales it decides how many there are.
        assert "replicas" not in deployments["clew-worker"]
        (container,) = deployments["clew-worker"]["template"]["spec"]["containers"]
        (settings,) = [one for one in rendered if one["kind"] == "ConfigMap"]
        assert container["envFrom"][0]["configMapRef"]["name"] == settings["metadata"]["name"]
        assert container["image"] == f"clew:{__version__}"

    def test_every_file_is_used(self) -> None:
        for folder in (BASE, KEDA):
            used = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
            files = {path.name for path in folder.iterdir()} - {"kustomization.yaml"}
            assert files == {one for one in used if not one.startswith("..")}

    def test_selectors_find_their_pods(self) -> None:
        labels = [pod["metadata"]["labels"] for pod in pods()]
        selectors = [
            one["spec"]["selector"].get("matchLabels", one["spec"]["selector"])
            for one in documents(BASE)
            if "selector" in one["spec"]
        ]
        assert len(selectors) == 5
        for selector in selectors:
            assert sum(selector.items() <= each.items() for each in labels) == 1, selector

    def test_pods_have_no_rights_and_time_to_end(self) -> None:
        for pod in pods():
            spec = pod["spec"]
            assert spec["securityContext"]["runAsNonRoot"]
            assert str(spec["securityContext"]["runAsUser"]) == of("USER")[0].partition(":")[0]
            assert spec["automountServiceAccountToken"] is False
            for container in spec["containers"]:
                assert container["securityContext"]["readOnlyRootFilesystem"]
                assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
                assert "memory" in container["resources"]["limits"]
        settings = yaml.safe_load((BASE / "kustomization.yaml").read_text())["configMapGenerator"][0][
            "literals"
        ]
        (wait,) = [int(one.partition("=")[2]) for one in settings if one.startswith("CLEW_SHUTDOWN_SECONDS")]
        for one in find(BASE, "Deployment"):
            assert one["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] >= wait + 10

    def test_probes_ask_for_public_routes(self) -> None:
        (api,) = [one for one in find(BASE, "Deployment") if one["metadata"]["name"] == "clew-api"]
        (container,) = api["spec"]["template"]["spec"]["containers"]
        paths = {
            container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "readiness", "liveness")
        }
        assert paths == {"/health", "/ready"}
        assert container["readinessProbe"]["httpGet"]["path"] == "/ready"

    def test_workers_are_scaled_by_the_runs_that_wait(self) -> None:
        (scaled,) = find(KEDA, "ScaledObject")
        names = [one["metadata"]["name"] for one in find(BASE, "Deployment")]
        assert scaled["spec"]["scaleTargetRef"]["name"] in names
        (trigger,) = scaled["spec"]["triggers"]
        assert trigger["type"] == "prometheus"
        assert "clew_runs_waiting" in trigger["metadata"]["query"]
        assert all(isinstance(value, str) for value in trigger["metadata"].values())


class TestSystemd:
    @pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
    def test_units_are_valid(self, path: Path, tmp_path: Path) -> None:
        program = shutil.which("systemd-analyze")
        if program is None:
            pytest.skip("this machine has no systemd-analyze")
        for each in UNITS:  # units refer to each other; the programme must be there
            there = each.read_text().replace("/opt/clew/bin/clew", sys.executable)
            (tmp_path / each.name).write_text(there)
        checked = subprocess.run(
            [program, "verify", "--man=no", str(tmp_path / path.name)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert path.name.split("@")[0] not in checked.stderr, checked.stderr
        assert checked.returncode == 0, checked.stderr

    @pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
    def test_units_run_as_a_user_of_their_own(self, path: Path) -> None:
        service = unit(path)["Service"]
        assert service["User"] == "clew"
        assert service["NoNewPrivileges"] == "yes"
        assert service["ProtectSystem"] == "strict"
