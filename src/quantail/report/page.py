"""One HTML file that needs nothing else: shell, scripts and safety.

Everything that comes from the user is escaped, once, here: text by :func:`text`, data of figures by
:func:`_json_block`. A content security policy that names the page's own scripts by their hashes
stands behind it: a browser runs nothing else and asks no other host for anything.
"""

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NewType

from plotly.offline import get_plotlyjs

from quantail.report.script import DRAW
from quantail.report.style import style_sheet

Markup = NewType("Markup", str)
"""HTML that is safe to put into the page; only this package's own functions make it."""


def text(value: object) -> Markup:
    """Escape a value for HTML text and attributes."""
    return Markup(html.escape(str(value), quote=True))


def plot_label(value: object) -> str:
    """Escape a value for a label inside a figure, where plotly reads a few HTML tags."""
    return html.escape(str(value), quote=False)


def join(parts: Sequence[Markup], between: str = "\n") -> Markup:
    """Join pieces of HTML."""
    return Markup(between.join(parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """One drawing: a plotly figure as JSON, and its name where there are several to choose from."""

    figure: str
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A figure of the page with the finding it shows."""

    name: str
    """Identifier in the page: lower-case letters and dashes."""
    finding: str
    """Title in words: what the figure shows."""
    caption: str
    """How to read it: units, conventions, what was left out."""
    sheets: tuple[Sheet, ...]
    """One drawing, or several for the reader to choose from."""
    choice: str = ""
    """What the reader chooses between, such as ``Symbol``."""


def plot(item: Plot) -> Markup:
    """Return the HTML of a figure: finding, drawing, caption."""
    return Markup(
        f"<figure><h3>{text(item.finding)}</h3>{_choice(item)}"
        f'<div class="plot" id="{item.name}" data-source="{item.name}-data" role="img" '
        f'aria-label="{text(item.finding)}"></div>'
        f"{_json_block(item)}<figcaption>{text(item.caption)}</figcaption></figure>"
    )


def _choice(item: Plot) -> Markup:
    if len(item.sheets) < 2:
        return Markup("")
    options = "".join(
        f'<option value="{index}">{text(sheet.label)}</option>'
        for index, sheet in enumerate(item.sheets)
    )
    return Markup(
        f'<label for="{item.name}-choice">{text(item.choice)}</label>'
        f'<select id="{item.name}-choice" data-plot="{item.name}" autocomplete="off">'
        f"{options}</select>"
    )


def _json_block(item: Plot) -> Markup:
    # Inside a script element only "<" could end the element early; JSON may spell it as an escape.
    sheets: list[Any] = [json.loads(sheet.figure) for sheet in item.sheets]
    data = json.dumps(sheets, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return Markup(f'<script type="application/json" id="{item.name}-data">{data}</script>')


def section(name: str, title: str, parts: Sequence[Markup]) -> Markup:
    """Return a section with its heading."""
    return Markup(
        f'<section id="{name}" aria-labelledby="{name}-title">'
        f'<h2 id="{name}-title">{text(title)}</h2>{join(parts)}</section>'
    )


def paragraph(words: str, kind: str = "") -> Markup:
    """Return a paragraph of plain words."""
    return Markup(f'<p class="{kind}">{text(words)}</p>' if kind else f"<p>{text(words)}</p>")


def note(title: str, items: Sequence[str], *, calm: bool = False) -> Markup:
    """Return a box that lists what the reader must know."""
    lines = "".join(f"<li>{text(item)}</li>" for item in items)
    kind = "note calm" if calm else "note"
    return Markup(f'<div class="{kind}"><strong>{text(title)}</strong><ul>{lines}</ul></div>')


def fold(title: str, content: str) -> Markup:
    """Return preformatted text that opens on a click."""
    return Markup(f"<details><summary>{text(title)}</summary><pre>{text(content)}</pre></details>")


_EMPTY_ICON: Final = "data:,"


def page(*, title: str, header: Markup, body: Markup, footer: Markup, with_figures: bool) -> str:
    """Return the whole file.

    Args:
        title: Title of the browser's tab.
        header: Top of the page: verdict and key figures.
        body: The sections.
        footer: End of the page.
        with_figures: Whether to put plotly's script in, which is most of the file.
    """
    scripts = (get_plotlyjs(), DRAW) if with_figures else ()
    allowed = " ".join(f"'sha256-{_digest(script)}'" for script in scripts) or "'none'"
    policy = (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
        "img-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'"
    )
    blocks = "".join(f"<script>{script}</script>\n" for script in scripts)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>{text(title)}</title>\n<link rel="icon" href="{_EMPTY_ICON}">\n'
        f"<style>{style_sheet()}</style>\n</head>\n<body>\n"
        f"<header>{header}</header>\n<main>{body}</main>\n<footer>{footer}</footer>\n"
        "<noscript><p>The figures need JavaScript; the text and the tables do not.</p></noscript>\n"
        f"{blocks}</body>\n</html>\n"
    )


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
