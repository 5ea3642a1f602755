"""Charts as PNG, drawn without a screen."""

import threading
import warnings
from io import BytesIO

from matplotlib import font_manager
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from clew.apps.chat.agents.tables import Groups
from clew.documents.tables.cells import shown

_COLOR = "#2f6f8f"
_LONG_LABEL = 10
# Fonts for characters that matplotlib's own font lacks; used if the machine has one of them.
_WIDE_FONTS = (
    "Noto Sans CJK SC",
    "Source Han Sans SC",
    "WenQuanYi Micro Hei",
    "Microsoft YaHei",
    "PingFang SC",
    "SimHei",
)
# Its font cache and its settings are the process's, and tasks draw from many threads.
_drawing = threading.Lock()


def draw(groups: Groups, title: str, *, kind: str, language: str = "en") -> bytes:
    """A bar, line or pie chart of the groups, whichever fits the data."""
    with _drawing, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure = Figure(figsize=(8, 4.8), dpi=140, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        names = [name[:40] for name, _ in groups.values]
        values = [value for _, value in groups.values]
        families = ["DejaVu Sans", *_available(title, *names)]
        if kind == "pie" and values and min(values) >= 0 and sum(values) > 0:
            axes.pie(values, labels=names, autopct="%1.0f%%", textprops={"family": families})
        elif kind == "line" or (kind != "bar" and groups.is_over_time):
            axes.plot(names, values, color=_COLOR, marker="o")
            axes.tick_params(axis="x", rotation=45 if len(names) > 6 else 0)
            _finish(axes, groups, families, language, upright=True)
        elif len(names) > 8 or any(len(name) > _LONG_LABEL for name in names):
            axes.barh(names[::-1], values[::-1], color=_COLOR)
            _finish(axes, groups, families, language, upright=False)
        else:
            axes.bar(names, values, color=_COLOR)
            _finish(axes, groups, families, language, upright=True)
        axes.set_title(title, family=families)
        out = BytesIO()
        figure.savefig(out, format="png", metadata={"Software": "Clew", "Title": title})
        return out.getvalue()


def _finish(axes: object, groups: Groups, families: list[str], language: str, *, upright: bool) -> None:
    """Names on one axis, numbers on the other, and nothing that is not data."""
    numbers, names = (axes.yaxis, axes.xaxis) if upright else (axes.xaxis, axes.yaxis)  # type: ignore[attr-defined]
    numbers.set_major_formatter(FuncFormatter(lambda value, _: shown(value, language)))
    numbers.set_label_text(groups.measure or "", family=families)
    names.set_label_text(groups.group, family=families)
    for label in names.get_ticklabels():
        label.set_family(families)
    numbers.grid(visible=True, alpha=0.3)
    axes.set_axisbelow(True)  # type: ignore[attr-defined]
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)  # type: ignore[attr-defined]


def _available(*texts: str) -> list[str]:
    if all(character < "\u2e80" for text in texts for character in text):
        return []
    installed = {font.name for font in font_manager.fontManager.ttflist}
    return [name for name in _WIDE_FONTS if name in installed]
