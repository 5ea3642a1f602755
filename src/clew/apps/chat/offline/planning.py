"""Work plans by rules: from what a prompt asks for and the documents at hand, to tasks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from clew.apps.chat.offline.scan import Scan
from clew.apps.chat.offline.wishes import Wish, Wishes, read_wishes
from clew.apps.chat.plan import MAX_LABEL, MAX_TEXT, Output, PlannedTask, WorkPlan
from clew.documents.passages import cut
from clew.domain.documents import split_name
from clew.domain.thread import Json
from clew.texts.phrases import Text, listed, say

# A prompt of so few words and characters may say nothing.
_GREETING, _SHORT = 3, 30
# What readers of files say of them, and how it is told to a user.
_WARNINGS = {"may be scanned": Text.SCANNED, "damaged": Text.DAMAGED, "password": Text.LOCKED}
# Wishes that only a text can serve.
_ABOUT_TEXTS = frozenset({Wish.SUMMARY, Wish.SEARCH, Wish.TRANSLATION})


@dataclass(frozen=True, slots=True)
class Held:
    """A document as the rules see it."""

    label: str
    kind: str  # text, table, picture, other
    round: int
    is_made: bool  # by an agent, not brought by the user
    tables: int = 0  # inside a text
    warning: str = ""  # what of it could not be read

    @property
    def has_table(self) -> bool:
        return self.kind == "table" or self.tables > 0

    @classmethod
    def of(cls, described: Mapping[str, Json]) -> "Held":
        return cls(
            label=str(described["label"]),
            kind=str(described.get("kind", "other")),
            round=int(described.get("round", 0)),
            is_made=described.get("origin") == "agent",
            tables=int(described.get("tables") or 0),
            warning=str(described.get("warning") or ""),
        )


@dataclass(slots=True)
class Draft:
    """A plan in the making."""

    tasks: list[PlannedTask] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    finals: list[str] = field(default_factory=list)

    def made(self) -> list[str]:
        return [output.label for task in self.tasks for output in task.outputs]


@dataclass(frozen=True, slots=True)
class Planner:
    prompt: str
    language: str
    agents: frozenset[str]
    documents: Sequence[Held]
    round: int = 1

    def plan(self) -> WorkPlan:
        wishes = read_wishes(self.prompt, [document.label for document in self.documents])
        at_hand = self._at_hand(wishes)
        draft = Draft()
        if not self.documents and self._is_talk():
            return WorkPlan(
                final_documents=(),
                tasks=(),
                response=f"{self._say(Text.HELLO)} {self._say(Text.OFFLINE)}",
                language=self.language,
                closing=self._say(Text.NO_TASK),
            )
        for one in at_hand:
            if one.round != self.round:
                continue
            if one.warning:
                draft.remarks.append(
                    self._say(Text.UNREADABLE, document=one.label, reason=self._reason(one.warning))
                )
            elif one.kind == "other":
                draft.remarks.append(self._say(Text.EMPTY_FILE, document=one.label))
        if Wish.FREE in wishes.wishes:
            draft.remarks.append(self._say(Text.NO_FREE_TEXT))
        if Wish.TRANSLATION in wishes.wishes:
            draft.remarks.append(self._say(Text.NO_TRANSLATION))
        if not self._is_refused(wishes):
            self._summarize(draft, wishes, at_hand)
            self._analyse(draft, wishes, at_hand)
            self._search(draft, wishes, at_hand)
            self._code(draft, wishes, at_hand)
            self._write(draft, wishes, at_hand)
        return WorkPlan(
            final_documents=tuple(dict.fromkeys(draft.finals or draft.made())),
            tasks=tuple(draft.tasks),
            response=self._response(draft, wishes, at_hand),
            language=self.language,
        )

    def _is_talk(self) -> bool:
        """A greeting, or a question what there is to do here, and nothing else."""
        scan = Scan.of(self.prompt, self.language)
        talk = [hit for name in ("help", "greeting") for hit in scan.take_list("talk", name)]
        scan.take_list("question", "filler")
        return bool(talk) and not any(scan.free())

    def _reason(self, warning: str) -> str:
        text = next((text for words, text in _WARNINGS.items() if words in warning), None)
        return self._say(text) if text else warning.rstrip(".")

    def _at_hand(self, wishes: Wishes) -> list[Held]:
        """What the wish is about: what it names, else what the user brought now, else what was there last."""
        if wishes.named:
            named = [document for document in self.documents if document.label in wishes.named]
            return [*named, *self._also_needed(wishes, named)]
        brought = [document for document in self.documents if not document.is_made]
        if now := [document for document in brought if document.round == self.round]:
            return now
        made = [document for document in self.documents if document.is_made and document.kind == "text"]
        # A follow-up like "now as PDF" means what was made last; "summarize it" means what it was made of.
        return made[-1:] if made and not wishes.explicit else brought or made

    def _also_needed(self, wishes: Wishes, named: Sequence[Held]) -> list[Held]:
        """What the other half of a wish is about: "summarize a.txt and chart the sales" means a table as well."""
        kinds = {document.kind for document in named}
        wants = {"text": bool(wishes.wishes & _ABOUT_TEXTS), "table": self._asks_figures(wishes)}
        missing = {kind for kind, is_wanted in wants.items() if is_wanted and kind not in kinds}
        if missing == {kind for kind, is_wanted in wants.items() if is_wanted}:
            return []  # the named ones are what all of it is about, whether they serve it or not
        others = [
            one for one in self.documents if one.kind in missing and not one.is_made and one not in named
        ]
        return [one for one in others if one.round == self.round] or others

    def _summarize(self, draft: Draft, wishes: Wishes, at_hand: Sequence[Held]) -> None:
        texts = [document.label for document in at_hand if document.kind == "text"]
        # For texts with a prompt that no rule understands, a summary is the best guess.
        says_nothing = self._says_nothing(wishes)
        is_wanted = Wish.SUMMARY in wishes.wishes or wishes.is_a_report or says_nothing
        if not (texts and is_wanted and "summarizer" in self.agents):
            return
        # Where the summary is all that is wanted, it is written in the format that is wanted.
        alone = not self._wants_figures(wishes, at_hand)
        asked = [*wishes.texts, *(self._free(f"summary.{ending}", draft) for ending in wishes.written)]
        direct = alone and len(asked) == 1
        label = asked[0] if direct else self._free("summary.md", draft)
        self._add(draft, "summarizer", [label], texts, Text.SUMMARIZE, texts)
        if direct:
            draft.finals.append(label)

    def _says_nothing(self, wishes: Wishes) -> bool:
        """A greeting, or nothing but the documents: a long prompt that no rule understands is a wish of its own."""
        understood = wishes.wishes or wishes.outputs or wishes.formats
        return not understood and len(self.prompt.split()) <= _GREETING and len(self.prompt) <= _SHORT

    def _is_refused(self, wishes: Wishes) -> bool:
        """Free writing, advice, errands: a summary or a chart would be the answer to another wish."""
        return Wish.FREE in wishes.wishes and not wishes.explicit & {Wish.SUMMARY, Wish.CHART, Wish.TABLE}

    def _wants_figures(self, wishes: Wishes, at_hand: Sequence[Held]) -> bool:
        tables = any(document.has_table for document in at_hand)
        asked = self._asks_figures(wishes) or (
            wishes.is_a_report and any(document.kind == "table" for document in at_hand)
        )
        # About tables alone, the analyst is asked whatever the prompt says: it answers only what it is sure of.
        only_tables = tables and not any(document.kind == "text" for document in at_hand)
        others = {Wish.CONVERSION, Wish.CODE, Wish.TRANSLATION, Wish.SUMMARY} & wishes.wishes
        return tables and (asked or (only_tables and not others and not wishes.code))

    def _analyse(self, draft: Draft, wishes: Wishes, at_hand: Sequence[Held]) -> None:
        if not self._wants_figures(wishes, at_hand):
            if Wish.CHART in wishes.wishes or wishes.tables or wishes.pictures:
                draft.remarks.append(self._say(Text.NO_TABLE))
            return
        if "analyst" not in self.agents:
            return
        tables = [document.label for document in at_hand if document.has_table]
        if not self._makes_files(wishes):
            self._add(draft, "analyst", [], tables, Text.ANALYSE, tables)
            return
        stem = split_name(tables[0])[0][:60]
        sheets = [ending for ending in ("xlsx", "csv") if ending in wishes.formats and not wishes.tables]
        named = bool(wishes.tables or sheets)
        wants_chart = Wish.CHART in wishes.wishes or wishes.pictures or "png" in wishes.formats or not named
        outputs = [
            *wishes.tables,
            *wishes.pictures,
            *(self._free(f"{stem}_table.{one}", draft) for one in sheets),
        ]
        if wants_chart and not wishes.pictures:
            outputs.append(self._free(f"{stem}_chart.png", draft))
        if not named:
            outputs.append(self._free(f"{stem}_table.xlsx", draft))
        self._add(draft, "analyst", outputs, tables, Text.ANALYSE, tables)
        draft.finals += [*wishes.tables, *wishes.pictures]

    def _asks_figures(self, wishes: Wishes) -> bool:
        return bool(wishes.wishes & {Wish.CHART, Wish.TABLE} or wishes.tables or wishes.pictures)

    def _makes_files(self, wishes: Wishes) -> bool:
        """A question about figures is answered by figures; files are made where they are asked for."""
        asked = Wish.CHART in wishes.wishes or wishes.outputs or wishes.formats
        return bool(asked) or wishes.is_a_report or self._says_nothing(wishes)

    def _search(self, draft: Draft, wishes: Wishes, at_hand: Sequence[Held]) -> None:
        if Wish.SEARCH not in wishes.wishes or "researcher" not in self.agents:
            return
        readable = [document.label for document in at_hand if document.kind in ("text", "table")]
        if draft.tasks:
            # "Chart the sales and find out what the report says": the tables are dealt with, the texts are not.
            readable = self._unread(draft, at_hand)
        if not readable:
            return
        # A question is answered in the chat; a file is made of the answer where one is asked for.
        labels = wishes.texts[:1] or [
            self._free(f"findings.{ending}", draft) for ending in wishes.written[:1]
        ]
        self._add(draft, "researcher", labels, readable, Text.SEARCH, readable)
        draft.finals += labels

    def _code(self, draft: Draft, wishes: Wishes, at_hand: Sequence[Held]) -> None:
        if "coder" not in self.agents or not (
            wishes.code or (Wish.CODE in wishes.wishes and not draft.tasks)
        ):
            return
        outputs = wishes.code or [self._free("main.py", draft)]
        inputs = [document.label for document in at_hand if document.kind in ("text", "table")]
        self._add(draft, "coder", outputs, inputs, Text.CODE, outputs)
        draft.finals += outputs

    def _write(self, draft: Draft, wishes: Wishes, at_hand: Sequence[Held]) -> None:
        labels = [label for label in wishes.texts if label not in draft.made()]
        if not wishes.texts and not draft.finals:
            stem = self._stem(at_hand)
            labels = [self._free(f"{stem}.{ending}", draft) for ending in wishes.written]
            if not labels and wishes.is_a_report:
                labels = [self._free("report.docx", draft)]
        inputs = [label for label in draft.made() if split_name(label)[1] in ("md", "png", "xlsx", "csv")]
        inputs += [label for label in self._unread(draft, at_hand) if label in wishes.named]
        if not draft.tasks:
            inputs = [document.label for document in at_hand if document.kind != "other"]
        if labels and not inputs:
            draft.remarks.append(self._say(Text.NO_FREE_TEXT))
        if not labels or not inputs or "writer" not in self.agents:
            return
        self._add(draft, "writer", labels, inputs, Text.WRITE, labels)
        draft.finals += labels

    def _unread(self, draft: Draft, at_hand: Sequence[Held]) -> list[str]:
        """The texts that no task so far is about."""
        read = {label for task in draft.tasks for label in task.inputs or ()}
        return [
            document.label for document in at_hand if document.kind == "text" and document.label not in read
        ]

    def _stem(self, at_hand: Sequence[Held]) -> str:
        """A document in another format keeps its name."""
        return split_name(at_hand[0].label)[0][:80] if len(at_hand) == 1 else "report"

    def _add(
        self,
        draft: Draft,
        agent: str,
        outputs: Sequence[str],
        inputs: Sequence[str],
        step: Text,
        about: Sequence[str],
    ) -> None:
        made = tuple(Output(label=label) for label in outputs)
        asked = cut(self.prompt, MAX_TEXT)
        draft.tasks.append(PlannedTask(agent=agent, prompt=asked, outputs=made, inputs=tuple(inputs)))
        draft.steps.append(self._say(step, documents=listed(about, self.language)))

    def _response(self, draft: Draft, wishes: Wishes, at_hand: Sequence[Held]) -> str:
        said = list(dict.fromkeys(draft.remarks))
        if draft.tasks:
            if self.round == 1:
                said.insert(0, self._say(Text.OFFLINE))
            steps = "\n".join(f"{number}. {step}" for number, step in enumerate(draft.steps, 1))
            return "\n\n".join([*said, f"{self._say(Text.WILL_DO)}\n{steps}"])
        if wishes.wishes and not at_hand:
            said.append(self._say(Text.NO_DOCUMENT))
        return "\n\n".join([self._say(Text.OFFLINE), *said, self._say(Text.NO_TASK)])

    def _free(self, label: str, draft: Draft) -> str:
        """The label, or one like it: a plan must not replace a document of the user."""
        taken = {document.label for document in self.documents if not document.is_made} | set(draft.made())
        stem, ending = split_name(label)
        candidate, number = label[-MAX_LABEL:], 2
        while candidate in taken:
            candidate, number = f"{stem}_{number}.{ending}", number + 1
        return candidate

    def _say(self, text: Text, **values: object) -> str:
        return say(text, self.language, **values)
