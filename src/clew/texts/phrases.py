"""Names of the fixed texts that Clew shows to users; the folder `languages` has them in every language."""

from collections.abc import Iterable
from enum import StrEnum

from clew.texts.catalog import DEFAULT, SUPPORTED, read_language, read_text

_PACKAGE = "clew.texts"


class Text(StrEnum):
    # the project manager
    OFFLINE = "offline"
    WILL_DO = "will_do"
    SUMMARIZE = "summarize"
    ANALYSE = "analyse"
    SEARCH = "search"
    WRITE = "write"
    CODE = "code"
    NO_TASK = "no_task"
    NO_TRANSLATION = "no_translation"
    NO_FREE_TEXT = "no_free_text"
    NO_DOCUMENT = "no_document"
    NO_TABLE = "no_table"
    # how a round ends
    DONE = "done"
    DELIVERED = "delivered"
    MISSING = "missing"
    TASKS_FAILED = "tasks_failed"
    STOPPED = "stopped"
    FAILED = "failed"
    TASK_FAILED = "task_failed"
    CUT_OFF = "cut_off"
    NOT_SEEN = "not_seen"
    # agents
    SUMMARY = "summary"
    SUMMARY_OF = "summary_of"
    NOTHING_TO_SUMMARIZE = "nothing_to_summarize"
    GROUPED = "grouped"
    COUNTED = "counted"
    SHAPE = "shape"
    COLUMN = "column"
    COLUMNS = "columns"
    KIND = "kind"
    FILLED = "filled"
    DISTINCT = "distinct"
    SMALLEST = "smallest"
    LARGEST = "largest"
    AVERAGE = "average"
    TOTAL = "total"
    OTHERS = "others"
    REPORT = "report"
    FIGURES = "figures"
    FOUND = "found"
    FOUND_NOTHING = "found_nothing"
    PAGE = "page"
    SLIDE = "slide"
    SHEET = "sheet"
    SOURCES = "sources"
    WROTE = "wrote"
    SKELETON = "skeleton"
    UNSURE = "unsure"
    NOT_DONE = "not_done"
    UNREADABLE = "unreadable"
    COMPUTED = "computed"
    MEDIAN = "median"
    SORTED = "sorted_rows"
    SHARE_OF = "share_of"
    ROWS = "rows"
    HIGHEST = "highest"
    LOWEST = "lowest"
    DIFFERENT = "different"
    ROWS_OF = "rows_of"
    DAY = "day"
    MONTH = "month"
    QUARTER = "quarter"
    YEAR = "year"
    NOT_UNDERSTOOD = "not_understood"
    LEFT_OUT = "left_out"
    CUT_ROWS = "cut_rows"
    HELLO = "hello"
    PARAGRAPH = "paragraph"
    TABLE_PLACE = "table_place"
    NO_REPLY = "no_reply"
    EMPTY_FILE = "empty_file"
    NO_ROWS = "no_rows"
    SCANNED = "scanned"
    DAMAGED = "damaged"
    LOCKED = "locked"
    LOOKED = "looked"


def say(text: Text, language: str, **values: object) -> str:
    """The text in that language, or in English if Clew has no texts in it."""
    return read_text(_PACKAGE, text, language, values)


def listed(names: Iterable[str], language: str) -> str:
    """The names as a list inside a sentence, with the separator of that language."""
    spoken = read_language(_PACKAGE, language if language in SUPPORTED else DEFAULT)
    return str(spoken["list_separator"]).join(names)
