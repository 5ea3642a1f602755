"""Everything outside the core, as the core sees it. One protocol per neighbour; adapters live in their own folders."""

from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime, timedelta
from typing import Literal, Protocol, TypeAlias

from clew.domain.assistants import Assistant, Object, Schemas, Search
from clew.domain.calls import Call, CallStatus
from clew.domain.checkpoints import ChannelValue, Found, StoredCheckpoint, Superstep, TaskWrites
from clew.domain.coding import Changes, Issue
from clew.domain.cron_jobs import CronJob, CronSearch
from clew.domain.documents import Extraction
from clew.domain.events import Body, Event, Order, ToolCall
from clew.domain.history import Message, NewMessage, Place, Shape
from clew.domain.history import Summary as HistorySummary
from clew.domain.inquiries import Inquiry, Purpose, Reply
from clew.domain.items import Answer, ItemChange, Namespace, Question
from clew.domain.labels import ThreadSearch
from clew.domain.ledger import Settled, Terms, Verdict
from clew.domain.lifecycle import Change, Stamp
from clew.domain.plan import AgentResult, AgentTask
from clew.domain.records import (
    ApiKey,
    Chunk,
    Claim,
    ContentItem,
    Conversation,
    Delivery,
    Document,
    Errand,
    File,
    Hold,
    Incoming,
    Lease,
    ModelCall,
    NumberKind,
    Once,
    Scope,
    Summary,
)
from clew.domain.retention import Binned, Candidate, Gone, Job, Orphan, Selection, Ticks, Usage
from clew.domain.thread import Json, Owner, Status, Thread
from clew.domain.views import GraphState, OpenQuestions, Token


class Clock(Protocol):
    def __call__(self) -> datetime: ...


class Store(Protocol):
    """Keeps threads and their events. Knows no rules: it saves what the domain decided, or refuses.

    Where an `owner` is asked for, another owner's thread does not exist; `None` is the system, which sees all.
    """

    async def commit(
        self,
        change: Change,
        *,
        fence: int | None = None,
        once: Once | None = None,
        admits: Incoming | None = None,
        claim: Claim | None = None,
        hold: Hold | None = None,
        overdue: str | None = None,
        unseen_since: datetime | None = None,
    ) -> None:
        """Save the thread, append its events and update its calls, in one transaction.

        The thread expires later. With `unseen_since` it does not, and the change is refused if somebody looked at the
        thread after that.

        A thread that waited and goes on, or ends, wakes the conversation that is led in it (Conversations).

        With a message that is taken back goes, in the same transaction, what models were told of it (Audit).

        A thread that is opened may be claimed with it, which gives its FIRST_FENCE. One that becomes active may take
        a worktree with it: raises WorktreeTaken if another active thread has it, Crowded if too many are taken.

        A thread that leaves `running` gives up its lease in the same transaction.
        Raises Conflict if the stored log no longer ends at `change.read_at`, if the call that is `overdue` was
        given more time since that was decided, or if the thread was looked at; LostLease if `fence` is no longer the thread's, NotFound if the thread
        was deleted, Repeated with the answer of then if `once` or `admits` were done before, Duplicate if they were
        used for something else.
        """
        ...

    async def get(self, thread_id: str, owner: Owner | None = None) -> Thread:
        """Raises NotFound."""
        ...

    async def find(
        self,
        owner: Owner | None = None,
        *,
        status: Collection[Status] = (),
        graph: str | None = None,
        active_since: datetime | None = None,
        before: tuple[datetime, str] | None = None,
        limit: int = 50,
    ) -> Sequence[Thread]:
        """Threads, newest first; `before` is the creation time and id of the last one already seen.

        One that cannot be read back comes as `get_listed` gives it, unless only some `status` is wanted.
        """
        ...

    async def tenant_of(self, thread_id: str) -> str | None:
        """Whose thread has this id, or had it and is remembered; None if it is free."""
        ...

    async def get_listed(self, thread_id: str, owner: Owner | None = None) -> Thread:
        """The same as `get`; but one that cannot be read back comes as a thread that failed, for that reason."""
        ...

    async def read(
        self,
        thread_id: str,
        *,
        after: int | None = None,
        before: int | None = None,
        limit: int | None = None,
        newest: bool = False,
        types: Collection[str] = (),
    ) -> Sequence[Event]:
        """Events with `after < seq < before`, in order; of more than `limit` the newest.

        With `after` they are the oldest, so that a reader goes on from there, unless it asks for the `newest`.

        Raises Corrupt when a row cannot be read back.
        """
        ...

    async def message_ids(self, thread_id: str, *, before: int) -> Sequence[str]:
        """The ids of all messages with a smaller seq, in order: what they say is not read."""
        ...

    async def seq_of(self, thread_id: str, event_id: str) -> int:
        """Where in the log a message or a log line stands. Raises NotFound."""
        ...

    async def fence(self, thread_id: str) -> int:
        """The thread's fence as it is: whoever writes under it is refused once somebody runs the thread. Raises NotFound."""
        ...

    async def has_work(self, graphs: Collection[str] = ()) -> bool:
        """Whether `claim` would find anything. A read, so that idle runners cost nothing."""
        ...

    async def claim(
        self,
        runner: str,
        *,
        lease: timedelta,
        limit: int,
        graphs: Collection[str] = (),
        alive: Collection[str] = (),
        recovered: tuple[int, int] | None = None,
    ) -> Sequence[Lease]:
        """Lease up to `limit` running threads that no live runner holds. Time is the database's.

        Of these `graphs`, if any are named: others are for a runner that has them. Of those that were then `recovered`
        from at least to at most so many times, if that is said.
        Threads that are `alive` here and still this runner's are left alone, however old their lease is: nobody died.
        """
        ...

    async def renew(self, runner: str, leases: Iterable[Lease], *, lease: timedelta) -> Collection[str]:
        """Prolong the leases; returns the ids of the threads whose lease is no longer this runner's."""
        ...

    async def release(self, runner: str, lease: Lease) -> None:
        """Give a lease back before its time. One that was lost is left alone."""
        ...

    async def release_all(self, runner: str, *, but: Collection[str]) -> None:
        """Give back every lease of the runner but those of these threads.

        A claim whose answer was lost has taken effect without the runner hearing of it."""
        ...

    async def touch(
        self, thread_ids: Sequence[str], *, now: datetime, grain: timedelta, waits: bool = False
    ) -> Collection[str]:
        """Somebody looked at these threads: they expire later. Returns those that were written.

        Not written are those that were looked at within the `grain` before, and those that another transaction holds
        at this moment, unless it `waits` for them.
        """
        ...

    async def bury(self, thread_id: str, owner: Owner | None = None, *, now: datetime) -> None:
        """Delete the thread for good: from now on it is not found, and nothing can be written under its id.

        Its rows are purged next. Raises NotFound.
        """
        ...

    async def purge(self, *, limit: int = 100, only: str | None = None) -> Sequence[str]:
        """Remove rows of up to `limit` buried threads, or of that one; returns their ids.

        A bounded number of rows a call: empty when nothing is left to do.
        """
        ...

    async def forget_buried(self, *, older: timedelta, limit: int = 1000) -> int:
        """Forget up to `limit` threads that were purged longer ago than this; returns how many. Time is the database's.

        From then on nothing guards their ids: one that is used again is a new thread.
        """
        ...


class Calls(Protocol):
    """Where each tool call stands. The rows follow the log; only `start` writes here by itself.

    A row that is missing or cannot be read back is rebuilt from the log, when it is asked for or by `rebuild`.
    Methods that need one raise Corrupt if the log cannot be read either.
    """

    async def find(self, thread_id: str, *, status: Collection[CallStatus] = ()) -> Sequence[Call]: ...

    async def get(self, thread_id: str, call_id: str) -> Call:
        """Raises NotFound."""
        ...

    async def start(
        self, thread_id: str, call_id: str, *, idempotent: bool = True, fence: int, now: datetime
    ) -> bool:
        """Mark that the effect may happen from now on, and whether it may twice.

        False if the call was not pending; raises LostLease.
        """
        ...

    async def pause(self, thread_id: str, call_id: str, *, fence: int) -> None:
        """Take the mark back: the tool stopped to ask, and will be carried out from its beginning."""
        ...

    async def reschedule(self, thread_id: str, call_id: str, deadline: datetime | None) -> bool:
        """Move or lift the deadline of a pending call. False if it is no longer pending."""
        ...

    async def rebuild(self, thread_id: str) -> None:
        """Bring back the rows that are missing or cannot be read. Those that can be stay as they are."""
        ...

    async def lost(self, *, after: str = "", limit: int) -> Sequence[str]:
        """Threads with an id greater than `after` that wait for an answer, and have no row of an open call."""
        ...

    async def due(self, *, now: datetime, limit: int) -> Sequence[Call]:
        """Pending calls past their deadline, the longest overdue first."""
        ...


class Summaries(Protocol):
    """Compactions of a log's beginning. Derived: deleting all of them changes nothing but speed."""

    async def add(self, thread_id: str, summary: Summary) -> None:
        """Raises NotFound if the thread was deleted."""
        ...

    async def load_since(self, thread_id: str) -> tuple[Summary | None, Sequence[Event]]:
        """The summary that reaches furthest, and the events after it; without one, all events."""
        ...

    async def drop(self, thread_id: str) -> int: ...


class Audit(Protocol):
    """What was sent to models. Bounded by age and by rows a thread."""

    async def add(self, call: ModelCall, *, keep: int | None = None) -> None:
        """Record one call; with `keep`, forget the thread's oldest beyond that many. Raises NotFound.

        What was sent is not kept of a call that is older than the thread's last redaction.
        """
        ...

    async def find(self, thread_id: str, *, limit: int = 100) -> Sequence[ModelCall]:
        """The newest calls of a thread, newest first."""
        ...

    async def trim(self, *, older_than: datetime, limit: int = 1000) -> int:
        """Forget up to `limit` old calls; returns how many."""
        ...


class Files(Protocol):
    """Uploads and documents. Bytes are kept once per content, in parts, and go when nobody refers to them."""

    async def add_part(self, sha256: str, part: int, data: bytes, *, now: datetime) -> None:
        """Keep one part of a content; the same part twice changes nothing."""
        ...

    async def add_file(self, file: File) -> None:
        """Make the upload visible. Raises Conflict if parts of its content are missing."""
        ...

    async def get_file(self, file_id: str, owner: Owner | None = None) -> File:
        """Raises NotFound."""
        ...

    async def find_files(
        self, owner: Owner | None = None, *, before: tuple[datetime, str] | None = None, limit: int = 100
    ) -> Sequence[File]:
        """Uploads, newest first; `before` is the creation time and id of the last one already seen."""
        ...

    async def delete_file(self, file_id: str, owner: Owner | None = None) -> None:
        """Raises NotFound. Documents made of it keep its bytes."""
        ...

    def read_bytes(self, sha256: str) -> AsyncIterator[bytes]:
        """The parts of a content in order. Raises NotFound before the first one."""
        ...

    async def add_document(self, document: Document, contents: Sequence[ContentItem]) -> None:
        """Raises NotFound if the thread was deleted."""
        ...

    async def get_document(self, thread_id: str, document_id: str) -> Document:
        """Raises NotFound."""
        ...

    async def find_documents(self, thread_id: str) -> Sequence[Document]: ...

    async def contents(self, thread_id: str, document_id: str) -> Sequence[ContentItem]: ...

    async def collect(self, *, older_than: datetime, limit: int = 100) -> int:
        """Remove contents that no file and no document refers to; returns how many."""
        ...


class Numbers(Protocol):
    """Integers for tenants, users and files of a tenant. One that was given stays, and no other is given it."""

    async def of(self, kind: NumberKind, tenant: str, names: Collection[str]) -> Mapping[str, int]:
        """The numbers of all these, given now to those that have none."""
        ...

    async def name_of(self, kind: NumberKind, tenant: str, number: int) -> str | None:
        """Whose number it is; None if nobody's of this tenant."""
        ...


class Extractor(Protocol):
    """Reads what is in a file, whoever made it."""

    async def extract(
        self,
        name: str,
        parts: AsyncIterable[bytes],
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> Extraction:
        """What the file holds; `progress` hears now and then how much of it is done, and of how much.

        A file that is damaged, hostile or too much gives what could be read of it, and warnings for a person.
        Raises Transient or Permanent only for what is not the file's fault.
        """
        ...


class Driver(Protocol):
    """How a model is asked; or rules in its place, which answer less."""

    @property
    def name(self) -> str: ...

    @property
    def model(self) -> str:
        """The model's name; empty where there is none."""
        ...

    def can(self, purpose: Purpose) -> bool:
        """Whether such an inquiry can be answered at all."""
        ...

    async def ask(self, inquiry: Inquiry) -> Reply:
        """The answer, as it came: whoever asked checks it.

        Raises Transient or Permanent with an error class, Permanent also for what needs a model where there is none.
        """
        ...


class Tracker(Protocol):
    """Where issues come from."""

    async def fetch(self, issue_id: str, text: str | None) -> Issue:
        """The issue as it stands there. `text` is what the caller said: the issue itself where there is no tracker.

        Raises NotFound for an issue that is not there, Invalid for what is no id of one, Transient when the tracker
        is away, Permanent when it does not let us in.
        """
        ...


class Worktrees(Protocol):
    """The folders of code that may be worked in."""

    @property
    def has_roots(self) -> bool:
        """Whether somebody said where worktrees may be."""
        ...

    async def find(self, path: str) -> "Worktree":
        """Raises Invalid for what is not absolute, not there, not allowed, or not the top of a work tree."""
        ...


class Worktree(Protocol):
    """One of them. Raises Transient or Permanent where git cannot be asked."""

    @property
    def path(self) -> str:
        """Its one name: whatever links and spellings lead there."""
        ...

    @property
    def name(self) -> str: ...

    async def base(self) -> str:
        """The commit it stands at now."""
        ...

    async def files(self) -> Sequence[str]:
        """Its files, without those git ignores."""
        ...

    async def changes(self, base: str) -> Changes:
        """What differs from that commit, files that git does not know yet included."""
        ...

    async def read(self, path: str) -> str | None:
        """The whole text of a file; None where there is none, or it is too long or no text."""
        ...

    async def write(self, new: Mapping[str, str], *, over: Mapping[str, str]) -> None:
        """Whole files by their paths. `over` has the text that each of them has now; the others do not exist.

        Raises Invalid where that is not so, and for a path outside of the worktree, also by a link. All are checked
        before the first is written.
        """
        ...

    async def starts(self) -> Sequence[str]:
        """Settings of the repository that make git start programs where git reads them."""
        ...

    def looking(self) -> AbstractAsyncContextManager[Mapping[str, str]]:
        """Variables with which a program's own git calls read none of the repository's settings, and change nothing."""
        ...

    def alone(self) -> AbstractAsyncContextManager[int]:
        """Let nobody else change it meanwhile; a program left by an earlier attempt is ended first.

        Gives an open file which a program that works there must keep open. Raises Transient if one cannot be ended.
        """
        ...


class Agent(Protocol):
    """One role of the chat workflow. `description` tells a project manager what to use it for."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    async def process_task(self, task: AgentTask) -> AgentResult:
        """Do it. Whatever this raises, the task has failed and the next one runs."""
        ...


class Trash(Protocol):
    """Threads deleted softly: for everybody else they do not exist, and for a while they can be brought back."""

    async def put(self, thread_id: str, owner: Owner | None = None, *, now: datetime) -> None:
        """Whoever runs the thread can write no more. Raises NotFound."""
        ...

    async def restore(self, thread_id: str, owner: Owner | None = None, *, now: datetime) -> None:
        """As if it had never been away, and just been looked at. Raises NotFound, also once its time there is over."""
        ...

    async def find(self, owner: Owner | None = None, *, limit: int = 100) -> Sequence[Binned]:
        """Those that were deleted last come first."""
        ...


class Cleanups(Protocol):
    """Deletes threads in bulk. One cleanup at a time in the whole cluster; one that was cut short can be taken up.

    A `runner` is whoever is at it, for as long as its lease. Methods that delete raise LostLease once it is another.
    """

    async def begin(self, job: Job, *, runner: str, lease: timedelta) -> bool:
        """Write the job down and be at it; False if another one is under way."""
        ...

    async def begin_turn(
        self, job: Job, is_due: Callable[[datetime], bool], *, runner: str, lease: timedelta
    ) -> bool:
        """The same for a cleanup that nobody asked for, if `is_due` says so of the time of the last one.

        Of many callers one gets the turn. While another cleanup is under way nobody does, and it is still due after.
        Counting begins with the first call.
        """
        ...

    async def has_unfinished(self) -> bool:
        """A read, so that looking for something to take up costs nothing."""
        ...

    async def take_up(self, *, runner: str, lease: timedelta) -> Job | None:
        """The oldest job that is not finished, if nobody is at one."""
        ...

    async def last(self) -> Job | None:
        """The one that was begun last."""
        ...

    async def due(
        self, wanted: Selection, *, after: tuple[int, str] | None, limit: int
    ) -> Sequence[Candidate]:
        """Threads that are due now, the oldest first, from behind `after`."""
        ...

    async def count(self, wanted: Selection) -> tuple[int, int]:
        """How many threads of the selection's owner are due, and how many are not."""
        ...

    async def delete(
        self, job: Job, some: Sequence[Candidate], *, runner: str, lease: timedelta, now: datetime
    ) -> Sequence[Gone]:
        """Delete those that are still due, all in one transaction with the job's progress. One that somebody holds at
        this moment stays, for another cleanup.

        Rows of very long logs are left to `Store.purge`.
        """
        ...

    async def skip(self, job: Job, one: Candidate, *, runner: str, lease: timedelta) -> None:
        """Count one that cannot be deleted, and go on behind it."""
        ...

    async def orphans(self, *, after: str) -> tuple[Sequence[Orphan], str | None]:
        """Checkpoints whose thread does not exist, of some threads after this id; and where to go on, if anywhere."""
        ...

    async def delete_orphans(
        self, job: Job, some: Sequence[Orphan], *, runner: str, lease: timedelta
    ) -> Sequence[Gone]:
        """Delete those that nobody wrote to since they were seen."""
        ...

    async def forget(self, owner: Owner, *, limit: int) -> int:
        """Delete up to `limit` chat histories and as many store items of a tenant, or of one user in it; how many."""
        ...

    async def rest(self, job: Job, *, runner: str, finished_at: datetime | None) -> Job:
        """Be at it no longer; without a time to finish, somebody will take it up. Returns the job as it is now."""
        ...


class Duties(Protocol):
    """What happens once in the whole cluster."""

    async def tick(self, *, now: datetime) -> Ticks:
        """Look at the clock, and remember it for whoever looks next."""
        ...

    async def use_up(self, signature: str, *, now: datetime, believed: timedelta) -> bool:
        """False if it was used within the time it is believed."""
        ...


class Space(Protocol):
    """The room that everything takes."""

    async def usage(self, wanted: Selection) -> Usage:
        """What the threads of the selection's owner amount to, and how many of them are due by it."""
        ...

    async def sizes(self) -> Mapping[str, int]:
        """Bytes by table, indexes included, as far as the database can tell."""
        ...

    async def give_back(self, *, seconds: float) -> int:
        """Return unused room to the system for about so long; how many bytes it was."""
        ...


class Inbox(Protocol):
    """What came from outside, each thing once; also the queue of a thread that is busy."""

    async def admit(self, incoming: Incoming, *, now: datetime, is_opened: bool = False) -> bool:
        """Queue it, and wake its conversation if it is of one; False if it is here already.

        A conversation that is new is led in the thread named here, and so is one whose thread was deleted since.
        Raises Duplicate if it came before with another content, NotFound if it is of a thread that was deleted;
        with `is_opened`, also if that thread is not there yet, whatever conversation it is of.
        """
        ...

    async def settle(self, incoming: Incoming, *, now: datetime) -> None:
        """Take it off the queue, where nothing came of it. What it said is forgotten."""
        ...

    async def withdraw(self, incoming: Incoming, *, now: datetime) -> bool:
        """Take it off the queue and remember what it said for a while; False if it does not wait any more."""
        ...

    async def queued(self, *, limit: int = 100) -> Sequence[Incoming]:
        """What waits, oldest first. It leaves the queue with the commit that `admits` it."""
        ...

    async def waiting(self, source: str, thread_id: str) -> Sequence[Incoming]:
        """What waits for one thread, in the order it came, and what was withdrawn."""
        ...

    async def answered(self, tenant: str, key: str, fingerprint: str) -> Json | None:
        """The answer given to this request before, if any. Raises Duplicate if the key asked for something else."""
        ...

    async def forget(self, *, older_than: datetime, limit: int = 1000) -> int:
        """Drop old idempotency keys and admissions that are done; returns how many."""
        ...


class Labels(Protocol):
    """What clients hang on their threads to find them by. Not part of the log: the thread is the same without."""

    async def put(self, thread_id: str, labels: Mapping[str, Json]) -> None:
        """Set these; others stay. Raises NotFound, Invalid."""
        ...

    async def of(self, thread_ids: Collection[str]) -> Mapping[str, Mapping[str, Json]]: ...

    async def find(self, wanted: ThreadSearch) -> Sequence[str]:
        """The ids of the threads that have these labels, and objects of them inside of theirs."""
        ...

    async def count(self, wanted: ThreadSearch) -> int: ...


class Conversations(Protocol):
    """Chats of channels. One of all processes at a time sees to one, under a lease by the database's time.

    The methods that take a held conversation raise LostLease when it is no longer its holder's.
    """

    async def are_due(self, sources: Collection[str]) -> bool:
        """Whether `claim` would find anything. A read, so that waiting costs nothing."""
        ...

    async def claim(
        self,
        holder: str,
        sources: Collection[str],
        *,
        lease: timedelta,
        limit: int,
        alive: Collection[Conversation] = (),
    ) -> Sequence[Conversation]:
        """Hold up to `limit` in which something came, or whose thread went on and has come to rest.

        Those that are seen to here, `alive`, are left alone, however old their lease is: nobody died.
        """
        ...

    async def are_quiet(self, sources: Collection[str]) -> bool:
        """Whether nothing waits, runs or is being said in any of them."""
        ...

    async def position(self, source: str) -> Json:
        """How far the updates of a bot that is polled were admitted; None if it never was."""
        ...

    async def set_position(self, source: str, position: Json) -> None: ...

    async def first(self, held: Conversation, *, after: int = 0) -> Incoming | None:
        """What has waited longest in it, of those with a greater number."""
        ...

    async def keep(self, held: Conversation, cursor: Json, *, lease: timedelta) -> None:
        """Remember the cursor and the attempts, and hold on."""
        ...

    async def renew(self, held: Conversation, *, lease: timedelta) -> int:
        """Hold on; returns the number of what came last."""
        ...

    async def rest(self, held: Conversation, *, seen_seq: int, is_idle: bool) -> None:
        """Let go until something comes, or its thread has come to rest after `seen_seq`.

        One that `is_idle` has a thread that does not run. Its next look is due when that was answered, taken up or
        ended (Store.commit), so that waiting costs nothing however many wait.
        """
        ...

    async def put_off(self, held: Conversation, *, wait: timedelta) -> None:
        """Let go, and look again after so long."""
        ...

    async def move(self, held: Conversation, thread_id: str) -> None:
        """Let go, and lead it in that thread from now on; what waits goes along."""
        ...


Became: TypeAlias = Literal["admitted", "duplicate", "ignored"]


class Door(Protocol):
    """Where the webhooks of one bot knock. It asks for a proof of its own: raises Unauthenticated, Invalid."""

    @property
    def thanks(self) -> str:
        """What the provider wants to hear when all is well."""
        ...

    def greet(self, delivery: Delivery) -> str:
        """What to answer a provider that makes sure of us."""
        ...

    async def receive(self, delivery: Delivery) -> Became:
        """What became of it, durably: `admitted`, `duplicate`, or `ignored`. Raises Duplicate."""
        ...


class Keys(Protocol):
    """API keys, by the hash of their secret."""

    async def add(self, key: ApiKey) -> None: ...

    async def by_hash(self, hash: str) -> ApiKey | None: ...

    async def find(self) -> Sequence[ApiKey]: ...

    async def revoke(self, key_id: str, *, now: datetime) -> None:
        """Raises NotFound."""
        ...


class Assistants(Protocol):
    """Assistants that people made, with all their versions. Another owner's does not exist: NotFound."""

    async def add(self, assistant: Assistant, owner: Owner) -> bool:
        """False if the tenant has one of this id, whoever's it is."""
        ...

    async def get(self, assistant_id: str, owner: Owner) -> Assistant: ...

    async def of_tenant(self, tenant: str, ids: Collection[str]) -> Mapping[str, Assistant]:
        """Those of these ids that are no single user's, by id."""
        ...

    async def find(self, owner: Owner, wanted: Search, *, graphs: Collection[str]) -> Sequence[Assistant]:
        """All that the search wants and whose graph is one of these, in no order."""
        ...

    async def revise(
        self, assistant_id: str, owner: Owner, change: Callable[[Assistant], Assistant]
    ) -> Assistant:
        """Make a new version of the one that counts, which counts from now on. Of two changes none is lost."""
        ...

    async def versions(
        self, assistant_id: str, owner: Owner, *, metadata: Object, limit: int, offset: int
    ) -> Sequence[Assistant]:
        """The newest first, those with this metadata. Each is as old as the version."""
        ...

    async def set_latest(self, assistant_id: str, owner: Owner, version: int, *, now: datetime) -> Assistant:
        """From now on that version counts. NotFound also without such a version."""
        ...

    async def delete(self, assistant_id: str, owner: Owner) -> None: ...


class Crons(Protocol):
    """Runs that are ordered again and again. Another owner's does not exist: NotFound."""

    async def add(self, job: CronJob, *, most: int) -> None:
        """Raises NotAllowed where its owner has so many, NotFound if its thread is gone."""
        ...

    async def get(self, cron_id: str, owner: Owner) -> CronJob: ...

    async def find(self, owner: Owner, wanted: CronSearch) -> Sequence[CronJob]:
        """All that the search wants, in no order."""
        ...

    async def revise(self, cron_id: str, owner: Owner, change: Callable[[CronJob], CronJob]) -> CronJob:
        """Of two changes none is lost. Whose it is, and in which thread, does not change."""
        ...

    async def delete(self, cron_id: str, owner: Owner) -> None: ...

    async def are_due(self, *, now: datetime) -> bool:
        """Whether `claim` would find anything. A read, so that waiting costs nothing."""
        ...

    async def claim(self, *, now: datetime, lease: timedelta, limit: int) -> Sequence[CronJob]:
        """Those that are due, or that a clock far ahead has counted. Nobody else gets them until the lease has run out."""
        ...

    async def advance(self, claimed: CronJob, counted: CronJob) -> bool:
        """Let go of it with its next time; False if it was changed or deleted meanwhile, and that counts."""
        ...


class Errands(Protocol):
    """What is to be done when runs are over. Written before a run begins, so that no crash loses it."""

    async def add(self, errand: Errand, *, wait: timedelta) -> None:
        """To be looked at after so long, and when its thread does not run. One that is there already stays as it is."""
        ...

    async def are_due(self) -> bool:
        """Whether `claim` would find anything."""
        ...

    async def claim(self, *, lease: timedelta, limit: int) -> Sequence[Errand]:
        """Nobody else gets them until the lease has run out."""
        ...

    async def put_off(self, errand: Errand, *, wait: timedelta) -> None:
        """Let go of it as it is now, and look again after so long."""
        ...

    async def done(self, run_id: str) -> None: ...


class Webhooks(Protocol):
    """Addresses that callers left to be told when something is over."""

    async def rules(self) -> Callable[[str], None]:
        """What is allowed now: a function that raises Invalid for an address that cannot be told."""
        ...

    async def tell(self, url: str, body: bytes) -> None:
        """Raises Transient or Permanent unless it was taken."""
        ...


class Items(Protocol):
    """Values under namespaces and keys, the store of LangGraph. Tenants never see each other's.

    The metadata and chunks of chat histories can be read here like items, and cannot be written.
    """

    async def ask(
        self, tenant: str, questions: Sequence[Question], *, expired: bool = False
    ) -> Sequence[Answer]:
        """One answer a question, all from one moment. Changes nothing. `expired` shows also what is past its time."""
        ...

    async def change(
        self,
        tenant: str,
        questions: Sequence[Question],
        changes: Sequence[ItemChange],
        *,
        expired: bool = False,
    ) -> Sequence[Answer]:
        """Answer the questions, then make the changes in order: all in one transaction or not at all.

        Raises Invalid for a value that is not JSON, NotAllowed for a change to what only views a history.
        """
        ...

    async def refresh(self, tenant: str, names: Sequence[tuple[Namespace, str]]) -> None:
        """Let the time to live of these items begin anew. An item that is past its time stays so."""
        ...

    async def sweep(self, *, limit: int = 1000) -> int:
        """Remove up to `limit` items past their time, every tenant's; returns how many."""
        ...


class Histories(Protocol):
    """Chat histories: one row a message, numbered from 1 without a gap inside the transaction that writes it."""

    async def append(
        self,
        place: Place,
        messages: Sequence[NewMessage],
        *,
        shape: Shape,
        origin: str | None = None,
        thread_id: str | None = None,
        user_id: str = "",
    ) -> int:
        """Append the messages side by side, all or none; returns the seq of the history's last message.

        A history that begins with a `thread_id` is the memory of that thread, and is deleted with it. Raises NotFound
        if the thread was deleted. One that begins with a `user_id` is that user's; see `delete_all`.

        A message whose id is stored already is left out. When `origin`, a piece of work that may run again after a
        crash, answers a message for the second time, its new answer takes the place of its first.
        """
        ...

    async def tail(self, place: Place, *, limit: int) -> Sequence[Message]:
        """The newest messages, oldest first. Reads no more than it returns."""
        ...

    async def read(self, place: Place, *, after: int = 0, limit: int = 1000) -> Sequence[Message]:
        """Messages with a greater seq, in order."""
        ...

    async def summary(self, place: Place) -> HistorySummary | None: ...

    async def delete(self, place: Place) -> bool:
        """Forget a conversation for good; False if there was none."""
        ...

    async def delete_all(self, owner: Owner, *, limit: int = 100) -> int:
        """Delete up to `limit` conversations of the tenant, or of one user in it; returns how many, 0 when none is left."""
        ...


class Checkpoints(Protocol):
    """Keeps LangGraph's checkpoints by thread and namespace, in the order they were stored.

    Writing under a buried thread raises NotFound; with a `fence` that is no longer the thread's, LostLease.
    Threads that are nobody's (a graph used without our engine) have neither.
    """

    async def put(self, steps: Sequence[Superstep], *, fence: int | None = None) -> None:
        """Store steps of one thread, oldest first, in one transaction; a value that is there already stays.

        Raises ParentGone if a parent that a step builds on is no longer there.
        """
        ...

    async def put_writes(
        self, thread_id: str, ns: str, writes: TaskWrites, *, fence: int | None = None
    ) -> None:
        """Add what a task wrote. Of two writes with one index the first stays, but of special ones the last."""
        ...

    async def get(self, thread_id: str, ns: str, checkpoint_id: str | None = None) -> Found | None:
        """The checkpoint, or the newest one."""
        ...

    async def find(
        self,
        thread_id: str | None = None,
        ns: str | None = None,
        *,
        checkpoint_id: str | None = None,
        before: str | None = None,
        below: int | None = None,
        limit: int,
    ) -> Sequence[StoredCheckpoint]:
        """Checkpoints, newest first. `before` is the id of a checkpoint in any namespace of the thread.

        `below` goes on after the `seq` of the last one seen.
        """
        ...

    async def writes_of(
        self, thread_id: str, ns: str, checkpoint_ids: Collection[str]
    ) -> Sequence[TaskWrites]: ...

    async def values_of(
        self,
        thread_id: str,
        ns: str,
        versions: Mapping[str, Collection[str]],
        *,
        held: Mapping[str, str] | None = None,
    ) -> Sequence[ChannelValue]:
        """The channels' values at these versions, and all that they are built of.

        `held` names older versions the caller has: what those are built of is left out. A caller that cannot build
        on what it holds, because its version is of another branch, asks again without.
        """
        ...

    async def copy(self, source: str, target: str) -> None:
        """Copy a thread's checkpoints, values and writes; what the target has already stays.

        The source may be written to meanwhile: the copy is a state it was in. Raises NotFound if one of them was deleted.
        """
        ...

    async def delete(self, thread_id: str) -> None: ...

    async def delete_runs(self, run_ids: Collection[str]) -> None:
        """Delete the checkpoints these runs made. Values that others build on stay."""
        ...

    async def prune(self, thread_id: str) -> None:
        """Delete all but the newest checkpoint of each namespace.

        Checkpoints whose writes a channel of the newest one is rebuilt from stay as well. Raises NotAllowed if the thread
        is running.
        """
        ...


class Ledger(Protocol):
    """What a running graph says to the log: what it did, and which tools it wants to run."""

    @property
    def thread(self) -> Thread:
        """The thread as this run knows it."""
        ...

    @property
    def scope(self) -> Scope:
        """On whose behalf the run goes on. Handed in with the command that woke the thread, never stored."""
        ...

    async def record(self, *bodies: Body) -> None:
        """Durable on return. Raises LostLease, NotFound or NotAllowed once the thread is no longer this run's."""
        ...

    def note(self, *bodies: Body) -> None:
        """Recorded soon, and before anything recorded later; for what nothing waits for."""
        ...

    async def begin(self, call: ToolCall, terms: Terms) -> Verdict:
        """Log the call unless it is known, and say what to do with it; Go means it is marked as started."""
        ...

    async def finish(self, call_id: str, *, ok: bool, result: Json = None, error: str = "") -> None:
        """Log the result of a call that was carried out."""
        ...

    async def pause(self, call_id: str) -> None:
        """A tool that was begun stopped to ask something itself; it will be begun again."""
        ...

    def abandon(self, call_id: str) -> None:
        """A tool that was begun was cut off: nobody waits for it any more."""
        ...

    async def fates(self, call_ids: Collection[str]) -> Mapping[str, Settled]:
        """What to tell a model of calls that an earlier round left: their results, or how far they came."""
        ...

    def asked_before(self, call_id: str) -> int:
        """How often this round stopped for this call."""
        ...

    def is_asking(self, call_id: str) -> bool:
        """Whether this run wants somebody to be asked about the call."""
        ...


class Run(Ledger, Protocol):
    """A run as the graph inside it sees it: the ledger, and what the thread remembers."""

    async def transcript(self) -> tuple[Summary | None, Sequence[Event]]:
        """The summary that reaches furthest and the events after it, this run's own included."""
        ...

    async def sum_up(self, from_seq: int, to_seq: int, content: Json, *, version: str) -> None:
        """Keep a summary of these events."""
        ...

    def saying(self, text: str) -> None:
        """What the model has said of its answer so far; a stop in the middle keeps it, marked as cancelled."""
        ...

    async def audit(self, call: ModelCall) -> None:
        """Keep what was sent to a model, where that is switched on."""
        ...

    async def idle(self) -> None:
        """Wait until no tool is under way."""
        ...

    def stamp(self) -> Stamp:
        """The time, and where ids come from."""
        ...


class Bridge(Protocol):
    """Runs a thread's graph from where it stands until it ends or must wait."""

    def run(
        self, log: Sequence[Event], run: Run, *, fence: int, is_new: bool = False
    ) -> AsyncGenerator[Body, None]:
        """Drive the current round, whose events are `log`. What happened comes out as bodies to record, in order.

        `is_new` says that nobody has run the thread before, so there is nothing to find out about where it stands.
        Suspensions come last, once everything they rest on is durable. A graph that ended yields none.
        """
        ...

    def drain(self, thread_id: str) -> None:
        """Ask a run to end at its next safe point; it can be taken up again from there."""
        ...

    async def state(self, thread: Thread) -> GraphState:
        """The graph's own state as JSON. Raises NotFound when its graph is not registered here, SchemaMismatch."""
        ...

    async def snapshot(
        self, thread: Thread, place: Mapping[str, str] | None = None, *, subgraphs: bool = False
    ) -> Json:
        """The graph's state, newest or at that place, as LangGraph's clients know it.

        Raises NotFound, SchemaMismatch.
        """
        ...

    async def output(self, thread: Thread) -> Json:
        """What the graph gives out at its end, as JSON, and what it asks, if it does. Raises SchemaMismatch."""
        ...

    async def history(
        self,
        thread: Thread,
        *,
        limit: int,
        before: Mapping[str, str] | None = None,
        place: Mapping[str, str] | None = None,
        metadata: Mapping[str, Json] | None = None,
    ) -> Sequence[Json]:
        """Its states, newest first. One that cannot be read says why, under `error`."""
        ...

    async def change_state(
        self,
        thread: Thread,
        values: Json,
        *,
        fence: int,
        as_node: str | None = None,
        place: Mapping[str, str] | None = None,
    ) -> Json:
        """Write values by hand, as if a node had returned them; the place that leads to. Raises Invalid, LostLease.

        What the graph of a thread that waits has asked stays asked, unless it is written past it.
        """
        ...

    async def open_questions(self, thread: Thread, log: Sequence[Event]) -> OpenQuestions:
        """What the graph of a thread that waits asks now. `log` are the events of its round."""
        ...

    async def copy(self, source: str, target: str) -> None:
        """Give one thread the states of another."""
        ...

    async def take_back(self, run_id: str) -> None:
        """Drop the states that a run led to."""
        ...

    async def forget(self, thread_id: str) -> None:
        """Drop the graph's own state (checkpoints). Unknown ids are skipped."""
        ...

    def drop(self, thread_id: str) -> None:
        """Drop what this process holds of the graph's state in memory."""
        ...

    async def prune(self, thread_id: str) -> bool:
        """Drop all of the graph's own state but the newest; False if the thread is running, which keeps all."""
        ...

    async def checkpoint(self, thread_id: str) -> str | None:
        """The id of the graph's newest checkpoint: another one after every step. None if there is none."""
        ...

    async def latest(self, thread_id: str) -> Json:
        """The values of the graph's newest state as JSON, whether or not its graph is registered; None if there is none."""
        ...


class Closing(Protocol):
    """What a graph says when its round ends, recorded in the same commit as the end itself."""

    def __call__(self, thread: Thread, log: Sequence[Event], status: Status, reason: str) -> Sequence[Body]:
        """`log` is the round so far. Must not fail: there is nobody left to tell."""
        ...


class Graphs(Protocol):
    """Which graphs can be started here, and why the others cannot."""

    @property
    def graphs(self) -> Mapping[str, object]: ...

    @property
    def broken(self) -> Mapping[str, str]: ...


class Anatomy(Protocol):
    """How registered graphs are made, for those who look at them. Raises NotFound for a graph that is not here."""

    def title(self, graph: str) -> str:
        """The name its maker gave it; else the one it is registered under."""
        ...

    async def drawing(self, graph: str, *, xray: bool | int = False) -> Json:
        """Its nodes and edges; with `xray` those of subgraphs too, so many levels deep.

        Raises Invalid if it cannot be drawn.
        """
        ...

    async def schemas(self, graph: str) -> Schemas: ...

    async def subgraphs(
        self, graph: str, *, namespace: str | None = None, recurse: bool = False
    ) -> Mapping[str, Schemas]:
        """The schemas of its subgraphs, or of the one in this namespace."""
        ...


class Subscription(Protocol):
    async def wait(self, seconds: float) -> bool:
        """True once anything was published since the last wait, False after `seconds`."""
        ...

    def rung(self) -> Mapping[str, int | None]:
        """The logs that have grown since this was last asked, and after which seq, where that is known."""
        ...


class Bus(Protocol):
    """Says that a log has grown. Carries no data and may lose a call: readers read the store."""

    def publish(
        self, thread_id: str, after: int | None = None, end: int | None = None, *, goes_on: bool = False
    ) -> None:
        """`after` is where the log ended before: whoever hears of the thread for the first time reads on from there.

        `end` is where it ends now.
        `goes_on` says that the thread runs on, as before: nothing for those who wait for its rest.
        """
        ...

    def subscribe(
        self, thread_id: str | None = None, *, for_rest: bool = False
    ) -> AbstractContextManager[Subscription]: ...


class Bell(Protocol):
    """Rings between the processes that share a database. May lose a call: whoever waits for one looks by himself too."""

    def ring(self, thread_id: str, after: int | None, end: int | None = None) -> None:
        """Tell the others that a log has grown, where it ended before, and where now. Never waits."""
        ...

    def call(self) -> None:
        """Tell the others that a thread can be claimed. Never waits."""
        ...

    def listening(
        self, heard: Callable[[str, int | None], None], called: Callable[[], None]
    ) -> AbstractAsyncContextManager[None]:
        """Inside the block the others are heard, and what was rung here is told to them by its end."""
        ...


class Listener(Protocol):
    async def next(self) -> Token:
        """The next piece, made of all that was said of its message meanwhile. Not too many a second."""
        ...

    def forget(self, message: str) -> None:
        """Drop what is not told yet of a message: all of it can be read now."""
        ...


class ChunkRows(Protocol):
    """Parts of streams that are kept for a while."""

    async def add(self, thread_id: str, run_id: str, some: Sequence[Chunk], *, now: datetime) -> None:
        """Raises NotFound if the thread was deleted."""
        ...

    async def after(self, thread_id: str, run_id: str, number: int) -> Sequence[Chunk]:
        """Some of those with a greater number, in order; none when there are none."""
        ...

    async def forget(self, *, older_than: datetime, limit: int = 1000) -> int: ...


class Follower(Protocol):
    async def next(self, seconds: float) -> Chunk | None:
        """The next part; None if none came for so long."""
        ...


class Chunks(Protocol):
    """What graphs stream by order, part by part. Live for whoever follows; kept a while where that was ordered."""

    def begin(self, thread_id: str, order: Order, *, attempt: int) -> Callable[[str, bytes], None]:
        """An attempt at the run begins: the parts of it are told by name, as JSON. Telling never waits."""
        ...

    async def flush(self, run_id: str) -> None:
        """Wait until what is to be kept of the run is kept."""
        ...

    def end(self, run_id: str) -> None:
        """The attempt is over, however it went."""
        ...

    def follow(
        self, thread_id: str, run_id: str, *, after: int | None = None
    ) -> AbstractContextManager[Follower]:
        """The parts from now on; with `after`, also those before that have a greater number, as far as they are kept."""
        ...


class Live(Protocol):
    """What models say, while they say it. Kept nowhere, and lost on whoever is slow to listen."""

    def say(self, token: Token) -> None:
        """Never waits."""
        ...

    def listen(self, wants: Callable[[Token], bool]) -> AbstractContextManager[Listener]: ...
