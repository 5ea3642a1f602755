"""The pure parts of the coding workflow: ids, paths, plans, reviews, and the rules that stand in for a model."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.apps.coding import notes
from clew.apps.coding.edits import read_wish
from clew.apps.coding.plan import (
    issue_of,
    plan_hash,
    read_review,
    require_inside,
    require_issue_id,
    visible,
)
from clew.apps.coding.worktrees.places import is_spelled
from clew.apps.drivers.inquiries import Inquiry, Material, Purpose
from clew.config import Settings, load_settings, secrets_of
from clew.domain.errors import ConfigError, Invalid
from clew.domain.events import Opening
from clew.domain.lifecycle import begin, finish, next_round, open_thread, retry_round, stop
from clew.domain.profile import Profile
from clew.domain.thread import Json, Owner, Status
from tests.samples import stamp


@pytest.mark.parametrize("issue_id", ["ABC-12", "12", "#12", "owner/name#12", "a.b_c-1"])
def test_ids_of_issues_are_taken_as_trackers_write_them(issue_id: str) -> None:
    assert require_issue_id(issue_id) == issue_id


@pytest.mark.parametrize(
    "issue_id",
    [
        None,
        "",
        "--help",
        "-oProxyCommand=x",
        "$(id)",
        "a;b",
        "a b",
        "a\nb",
        "../x",
        "a/../b",
        "é",
        "x" * 201,
        "a?b",
    ],
)
def test_what_could_mean_something_else_somewhere_is_no_id(issue_id: str | None) -> None:
    with pytest.raises(Invalid) as refused:
        require_issue_id(issue_id)
    assert refused.value.field == "issueId"


def test_a_text_is_an_issue_with_its_first_line_as_title() -> None:
    issue = issue_of("A-1", "\n  Fix it  \n\nIt is broken.\n")
    assert (issue.title, issue.body) == ("Fix it", "It is broken.")


@pytest.mark.parametrize("path", ["a", "src/app.py", "a b/c.md", ".github/x.yml", "ü/ß.txt", ".gitignore"])
def test_paths_inside_of_a_worktree_are_taken(path: str) -> None:
    assert "/".join(require_inside(path)) == path


@pytest.mark.parametrize(
    "path",
    [
        *("", "/etc/passwd", "../x", "a/../../x", "a//b", "./a", "a/", "a\\b", "a\0b", "a\nb", "x" * 501),
        *(".git/config", "sub/.git/hooks/x", ".GIT/config", ".git./config", ".git /config", "GIT~1/config"),
    ],
)
def test_paths_that_lead_out_or_into_git_are_refused(path: str) -> None:
    with pytest.raises(Invalid):
        require_inside(path)


@given(st.text(max_size=60))
def test_a_path_that_is_taken_stays_inside(path: str) -> None:
    try:
        parts = require_inside(path)
    except Invalid:
        return
    inside = Path("/top").joinpath(*parts)
    assert inside.is_relative_to("/top")
    assert ".." not in inside.parts
    assert ".git" not in [part.casefold() for part in inside.parts]


@pytest.mark.parametrize(
    "value",
    [
        *(None, [], {}, {"files": []}, {"files": [{"path": "a"}]}, {"files": [{"content": "x"}]}),
        {"files": [{"path": "../a", "content": "x"}]},
        {"files": [{"path": "a", "content": "\0"}]},
        {"files": [{"path": f"f{n}", "content": ""} for n in range(101)]},
        {"files": [{"path": "a", "content": ""}] * 2},
        {"files": [{"path": "a", "content": ""}], "delete": ["a"]},
        {"delete": ["../a"]},
        {"delete": [{"path": "a"}]},
        {"rename": [{"from": "a", "to": ".git/config"}]},
        {"rename": [{"from": "a", "to": "b"}, {"from": "c", "to": "b"}]},
        {"edits": [{"path": "a", "find": "", "replace": "x"}]},
        {"edits": [{"path": "a", "find": "x"}]},
        {"edits": "x"},
    ],
)
def test_an_answer_that_is_no_list_of_edits_is_refused(value: Json) -> None:
    with pytest.raises(Invalid):
        read_wish(value)


@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        {"approved": "yes"},
        {"approved": 1},
        {"approved": False},
        {"approved": False, "remarks": " "},
    ],
)
def test_what_is_neither_yes_nor_a_no_with_reasons_is_no_review(value: Json) -> None:
    with pytest.raises(Invalid):
        read_review(value)


def test_what_nobody_sees_is_not_in_a_plan() -> None:
    hidden = "\u202e\u2066\u200b\ufeff\x00\x1b[8m\U000e0041\ue000"
    assert visible(f"1. mend{hidden} it\r\n\tnow") == "1. mend[8m it\n\tnow"
    seen = "👩\u200d💻 é ü 写 \u0645\u06cc\u200c\u062e"
    assert visible(seen) == seen


def test_a_plan_is_known_by_every_letter_of_it() -> None:
    assert plan_hash("a") == plan_hash("a")
    assert plan_hash("a") != plan_hash("a ")


def test_a_disk_that_knows_no_case_does_not_make_two_names_of_one_folder() -> None:
    disk = {"/": ["home"], "/home": ["Ann"], "/home/Ann": ["Code"]}

    def names(folder: Path) -> Iterable[str] | None:
        # As such a disk does, it lists the folder however it is spelled.
        return next((entries for name, entries in disk.items() if name.lower() == str(folder).lower()), None)

    assert is_spelled(Path("/home/Ann/Code"), names)
    assert not is_spelled(Path("/home/Ann/code"), names)
    assert not is_spelled(Path("/home/ann/Code"), names)


def inquiry(purpose: Purpose, facts: dict[str, Json], **material: str) -> Inquiry:
    given = tuple(Material(label=label, text=text) for label, text in material.items())
    return Inquiry(purpose=purpose, role="", prompt="", facts=facts, material=given)


def planned(body: str, *, issue_id: str = "A-1", files: tuple[str, ...] = (), remark: str = "") -> str:
    facts = {"issue": {"id": issue_id, "title": "Fix it"}, "files": list(files), "remark": remark}
    return notes.plan(inquiry(Purpose.DESIGN, facts, issue=body))


class TestWithoutAModel:
    def test_the_items_of_an_issue_are_the_steps(self) -> None:
        plan = planned("It is broken.\n\n- [ ] find out why\n* mend it\n2. test it\n")
        assert "1. find out why\n2. mend it\n3. test it\n" in plan
        assert notes.OFFLINE in plan

    def test_an_issue_without_items_is_taken_sentence_by_sentence(self) -> None:
        assert "1. The page is blank.\n2. It should show the list.\n" in planned(
            "The page is blank. It should show the list."
        )

    def test_an_issue_without_a_body_is_its_title(self) -> None:
        assert "1. Do what the title says: Fix it\n" in planned("")

    def test_a_remark_is_a_step(self) -> None:
        assert "2. Mind the remark: smaller" in planned("- mend it", remark="smaller")

    def test_no_file_that_is_there_is_overwritten(self) -> None:
        assert "- write `notes/A-1.md`" in planned("")
        assert "- write `notes/A-1-2.md`" in planned("", files=("notes/A-1.md",))
        assert "- write `notes/owner-name-12.md`" in planned("", issue_id="owner/name#12")

    def test_the_change_is_what_the_plan_says_and_passes_its_own_review(self) -> None:
        plan = planned("- mend it\n- test it")
        wish = read_wish(json.loads(notes.change(inquiry(Purpose.CHANGE, {}, plan=plan))))
        ((path, content),) = wish.files.items()
        assert path == "notes/A-1.md"
        assert "- [ ] mend it\n- [ ] test it\n" in content
        facts = {"files": [path]}
        answer = notes.review(inquiry(Purpose.REVIEW, facts, plan=plan, changes=content))
        assert read_review(json.loads(answer)).approved

    @pytest.mark.parametrize(
        ("files", "changes"), [((), "- [ ] mend it"), (("notes/A-1.md",), "- [ ] something else")]
    )
    def test_a_review_finds_what_is_missing(self, files: tuple[str, ...], changes: str) -> None:
        facts = {"files": list(files)}
        answer = notes.review(inquiry(Purpose.REVIEW, facts, plan=planned("- mend it"), changes=changes))
        said = read_review(json.loads(answer))
        assert not said.approved
        assert said.remarks.startswith("Missing: ")


class TestCommands:
    def test_a_command_is_a_program_or_a_list(self) -> None:
        for driver, usual in (("cli:claude", "claude"), ("cli:codex", "codex"), ("cli:gemini", "gemini")):
            assert Profile(name="a", driver=driver).command == (usual,)
        given: Json = ["/opt/claude", "--verbose"]
        assert Profile(name="a", driver="cli:claude", command=given).command == ("/opt/claude", "--verbose")
        one: Json = "my claude"
        assert Profile(name="a", driver="cli:claude", command=one).command == ("my claude",)

    @pytest.mark.parametrize("command", ["", " ", [], [1], ["a", None], {"a": 1}, "--version", ["a\nb"], 3])
    def test_anything_else_is_refused_by_name(self, command: Json) -> None:
        with pytest.raises(Invalid) as refused:
            Profile(name="a", driver="cli:claude", command=command)
        assert refused.value.field == "command"


class TestWhenAWorktreeIsTaken:
    def test_whatever_makes_a_thread_active_takes_it(self) -> None:
        opening = Opening(owner=Owner(), graph="coding", settings={"reserved": {"worktree": "/w"}})
        made = open_thread("t", opening, "go", stamp=stamp(), held=True)
        begun = begin(made.thread, stamp=stamp())
        failed = finish(begun.thread, Status.FAILED, stamp=stamp())
        again = retry_round(failed.thread, stamp=stamp())
        stopped = stop(again.thread, (), stamp=stamp())
        more = next_round(stopped.thread, "more", stamp=stamp())
        assert [change.reserves for change in (made, begun, again, more)] == [{"worktree": "/w"}] * 4
        assert [change.reserves for change in (failed, stopped)] == [{}, {}]

    def test_other_threads_take_none(self) -> None:
        opening = Opening(owner=Owner(), graph="chat")
        assert open_thread("t", opening, "go", stamp=stamp()).reserves == {}


class TestSettings:
    def loaded(self, folder: Path, **environ: str) -> Settings:
        return load_settings({"PATH": "/bin", "MY_KEY": "k", "OTHER": "o", **environ}, cwd=folder)

    def test_folders_are_a_list(self, tmp_path: Path) -> None:
        coding = self.loaded(tmp_path, CLEW_CODING_ROOTS="/a:/b c").coding
        assert coding.roots == (Path("/a"), Path("/b c"))
        (tmp_path / "clew.yaml").write_text("coding: {roots: [/a, /b], environment: [MY_KEY]}")
        assert self.loaded(tmp_path).coding.roots == (Path("/a"), Path("/b"))

    @pytest.mark.fault("X4")
    def test_programs_are_given_what_they_need_and_what_is_named(self, tmp_path: Path) -> None:
        given = self.loaded(tmp_path, CLEW_CODING_ENVIRONMENT="MY_KEY, MISSING").program_environment
        assert {name: value.get_secret_value() for name, value in given.items()} == {
            "PATH": "/bin",
            "MY_KEY": "k",
        }
        assert "k" in secrets_of(self.loaded(tmp_path, CLEW_CODING_ENVIRONMENT="MY_KEY"))

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            *(("ENVIRONMENT", value) for value in ("CLEW_CLEANUP_API_KEY", "A B", "A=1", "1A")),
            *(("ROOTS", value) for value in ("relative", "/a:b", "~/code")),
        ],
    )
    def test_none_of_our_own_is_handed_on_and_no_folder_is_guessed(
        self, tmp_path: Path, name: str, value: str
    ) -> None:
        with pytest.raises(ConfigError, match=f"CLEW_CODING_{name}"):
            self.loaded(tmp_path, **{f"CLEW_CODING_{name}": value})
