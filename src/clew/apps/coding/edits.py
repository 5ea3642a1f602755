"""Edits of a model: patches, whole files, deletions and renames. All are checked before the first is carried out."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from clew.apps.coding.plan import MAX_FILE_CHARACTERS, MAX_FILES, require_inside
from clew.apps.coding.ports import Edits, Worktree
from clew.domain.errors import Invalid
from clew.domain.thread import Json


@dataclass(frozen=True, slots=True)
class TextEdit:
    """A text of a file that stands there once, and what takes its place."""

    path: str
    find: str
    replace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedEdits:
    """What a model wants changed. Nothing of it is checked against the worktree yet."""

    patches: tuple[TextEdit, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    delete: tuple[str, ...] = ()
    rename: Mapping[str, str] = field(default_factory=dict)

    @property
    def paths(self) -> set[str]:
        """The files there that it concerns."""
        return {*self.files, *(patch.path for patch in self.patches), *self.delete, *self.rename}


def read_wish(value: Json) -> WantedEdits:
    """Raises Invalid naming what is wrong."""
    given = value if isinstance(value, Mapping) else {}
    patches = [_patch(entry) for entry in _list(given, "edits")]
    files = [(_text(entry, "path", "files"), _content(entry)) for entry in _list(given, "files")]
    delete = [_path(entry, "delete") for entry in _list(given, "delete")]
    rename = [
        (_text(entry, "from", "rename"), _text(entry, "to", "rename")) for entry in _list(given, "rename")
    ]
    for path in (*(path for path, _ in files), *(path for pair in rename for path in pair)):
        require_inside(path)
    taken = [path for path, _ in files] + delete + [path for pair in rename for path in pair]
    once = [*taken, *{patch.path for patch in patches}]
    if len({*once}) < len(once):
        raise Invalid("expected every file in one way only, and once", "files")
    if not once:
        raise Invalid("expected edits, files, delete or rename", "files")
    if len(once) > MAX_FILES:
        raise Invalid(f"expected at most {MAX_FILES} files", "files")
    return WantedEdits(patches=tuple(patches), files=dict(files), delete=tuple(delete), rename=dict(rename))


async def edits_of(
    worktree: Worktree, wish: WantedEdits, *, shown: Mapping[str, str], changed: Collection[str]
) -> Edits:
    """What a wish means in the worktree as it is. `shown` are the files that the model got whole, with their texts.

    Raises Invalid for what would lose a text that neither the model saw nor git has: `changed` are the files that
    differ from the commit.
    """
    listed = frozenset(await worktree.files())
    write = dict(wish.files)
    over = {path: text for path, text in shown.items() if path in write}
    for path in dict.fromkeys(patch.path for patch in wish.patches):
        text = await _current(worktree, path, listed, "edits.path")
        over[path] = text
        write[path] = _patched(text, [patch for patch in wish.patches if patch.path == path])
    delete = {}
    for path in wish.delete:
        text = await _current(worktree, path, listed, "delete")
        if path in changed and shown.get(path) != text:
            raise Invalid(
                f"{path} was not shown whole, and git does not have it: it is not deleted", "delete"
            )
        delete[path] = text
    rename = {}
    for old, new in wish.rename.items():
        rename[old] = (new, await _current(worktree, old, listed, "rename.from"))
    return Edits(write=write, over=over, delete=delete, rename=rename)


def _patched(text: str, patches: list[TextEdit]) -> str:
    for patch in patches:
        count = text.count(patch.find)
        if count != 1:
            raise Invalid(
                f"{patch.path}: the text to find stands there {count} times, and must once", "edits.find"
            )
        text = text.replace(patch.find, patch.replace)
    if len(text) > 5 * MAX_FILE_CHARACTERS:
        raise Invalid(f"{patches[0].path} would be too long", "edits.replace")
    return text


async def _current(worktree: Worktree, path: str, listed: Collection[str], field: str) -> str:
    text = await worktree.read(path) if path in listed else None
    if text is None:
        raise Invalid(f"{path} is no text file that git lists there", field)
    return text


def _list(given: Mapping[str, Json], name: str) -> list[Json]:
    found = given.get(name)
    if found is None:
        return []
    if not isinstance(found, list):
        raise Invalid("expected a list", name)
    return found


def _patch(entry: Json) -> TextEdit:
    path = _text(entry, "path", "edits")
    require_inside(path)
    find, replace = _text(entry, "find", "edits"), _text(entry, "replace", "edits")
    if not find:
        raise Invalid("expected a text that stands in the file", "edits.find")
    if len(replace) > MAX_FILE_CHARACTERS or "\0" in replace:
        raise Invalid(f"expected a text of at most {MAX_FILE_CHARACTERS} characters", "edits.replace")
    return TextEdit(path, find, replace)


def _path(entry: Json, field: str) -> str:
    if not isinstance(entry, str):
        raise Invalid("expected a path", field)
    require_inside(entry)
    return entry


def _text(entry: Json, name: str, field: str) -> str:
    value = entry.get(name) if isinstance(entry, Mapping) else None
    if not isinstance(value, str):
        raise Invalid("expected a text", f"{field}.{name}")
    return value


def _content(entry: Json) -> str:
    content = entry.get("content") if isinstance(entry, Mapping) else None
    if not isinstance(content, str) or len(content) > MAX_FILE_CHARACTERS or "\0" in content:
        raise Invalid(f"expected a text of at most {MAX_FILE_CHARACTERS} characters", "files.content")
    return content
