"""The look of the page: colors of both themes, and the style sheet.

Colors are CSS variables, so that a figure names a role (``var(--agent)``) and follows the theme.
All text reaches a contrast of 4.5 with its background and all lines 3; the hues stay apart for the
common kinds of color blindness, and figures tell series apart by dashes too.
"""

from collections.abc import Mapping
from typing import Final

LIGHT: Final[Mapping[str, str]] = {
    "page": "#fbfbfa",
    "card": "#ffffff",
    "text": "#1b1e23",
    "muted": "#59616d",
    "rule": "#dfe2e6",
    "grid": "#eceef0",
    "good": "#0a6b4f",
    "good-soft": "#e6f3ee",
    "warn": "#8a4b00",
    "warn-soft": "#fbf1e2",
    "calm": "#47505c",
    "calm-soft": "#eef0f2",
    "agent": "#0b5fa5",
    "agent-soft": "rgba(11, 95, 165, 0.16)",
    "series-a": "#b35300",
    "series-b": "#00745c",
    "series-c": "#8b3f80",
    "series-d": "#6d6200",
    "series-e": "#8c2f39",
    "reference": "#1b1e23",
    "flat": "#6b7280",
}

DARK: Final[Mapping[str, str]] = {
    "page": "#121518",
    "card": "#1a1e22",
    "text": "#e9ebee",
    "muted": "#a7afba",
    "rule": "#333a42",
    "grid": "#272d33",
    "good": "#6fd3b0",
    "good-soft": "#17302a",
    "warn": "#f2b366",
    "warn-soft": "#352716",
    "calm": "#b6bec9",
    "calm-soft": "#262c32",
    "agent": "#74b7f5",
    "agent-soft": "rgba(116, 183, 245, 0.22)",
    "series-a": "#f2a25c",
    "series-b": "#52c9a9",
    "series-c": "#d99fd0",
    "series-d": "#d3c45a",
    "series-e": "#f08a92",
    "reference": "#e9ebee",
    "flat": "#98a1ad",
}


def _variables(theme: Mapping[str, str]) -> str:
    return " ".join(f"--{name}: {color};" for name, color in theme.items())


def style_sheet() -> str:
    """Return the whole style sheet; paper is always light."""
    return (
        f":root {{ color-scheme: light dark; {_variables(LIGHT)} }}\n"
        "@media screen and (prefers-color-scheme: dark) {\n"
        f"  :root:not([data-paper]) {{ {_variables(DARK)} }}\n}}\n{_RULES}"
    )


_RULES: Final = """
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-behavior: smooth; }
body {
  margin: 0; background: var(--page); color: var(--text);
  font: 16px/1.6 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
  font-variant-numeric: tabular-nums; overflow-wrap: break-word;
}
main, header, footer { max-width: 68rem; margin: 0 auto; padding: 0 clamp(1rem, 4vw, 2.5rem); }
header { padding-top: clamp(1.5rem, 5vw, 3.5rem); }
h1 { font-size: 1rem; font-weight: 600; margin: 0; letter-spacing: .01em; }
h2 { font-size: 1.35rem; line-height: 1.3; font-weight: 650; margin: 3.5rem 0 .35rem; }
h3 { font-size: 1.02rem; line-height: 1.4; font-weight: 600; margin: 1.75rem 0 .25rem; }
p { margin: .35rem 0 .8rem; max-width: 46rem; }
a { color: var(--agent); }
.muted, figcaption { color: var(--muted); }
.meta { color: var(--muted); font-size: .9rem; margin: .2rem 0 0; }
.small { font-size: .9rem; }
.verdict {
  margin: 1.5rem 0 1.25rem; padding: 1.4rem clamp(1.1rem, 3vw, 1.8rem) 1.5rem; border-radius: 10px;
  background: var(--calm-soft); border-left: 5px solid var(--calm);
}
.verdict p { font-size: clamp(1.15rem, 2.6vw, 1.5rem); line-height: 1.4; font-weight: 600;
  margin: 0; max-width: 52rem; text-wrap: pretty; }
.verdict .more { font-size: 1rem; font-weight: 400; margin-top: .7rem; max-width: 46rem; }
.verdict .label { font-size: .8rem; font-weight: 650; letter-spacing: .04em; margin-bottom: .4rem;
  color: var(--calm); }
.verdict.good { background: var(--good-soft); border-color: var(--good); }
.verdict.good .label { color: var(--good); }
.verdict.warn { background: var(--warn-soft); border-color: var(--warn); }
.verdict.warn .label { color: var(--warn); }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: 1px;
  background: var(--card); border: 1px solid var(--rule); border-radius: 10px; overflow: hidden;
  margin: 0 0 .5rem; }
.figures div { box-shadow: 0 0 0 1px var(--rule); padding: .9rem 1.1rem 1rem; }
.figures dt { color: var(--muted); font-size: .85rem; }
.figures dd { margin: 0; font-size: 1.5rem; font-weight: 620; line-height: 1.35;
  white-space: nowrap; }
.figures dd.range { white-space: normal; color: var(--muted); font-size: .82rem; font-weight: 400; }
.note { background: var(--warn-soft); border-left: 4px solid var(--warn); border-radius: 8px;
  padding: .8rem 1.1rem; margin: 0 0 1rem; }
.note.calm { background: var(--calm-soft); border-color: var(--calm); }
.note strong { color: var(--warn); }
.note.calm strong { color: var(--calm); }
.note ul { margin: .3rem 0 0; padding-left: 1.2rem; }
nav { font-size: .9rem; border-bottom: 1px solid var(--rule); padding-bottom: .9rem; }
nav a { display: inline-block; padding: .25rem 0; margin-right: 1.2rem; text-decoration: none; }
nav a:hover { text-decoration: underline; }
figure { margin: .8rem 0 1.6rem; }
figcaption { font-size: .9rem; max-width: 46rem; }
.row { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr));
  gap: 0 2.5rem; }
.small-plots { grid-template-columns: repeat(auto-fit, minmax(min(100%, 18rem), 1fr)); }
.row > * { min-width: 0; }
.small-plots h3 { font-size: .95rem; min-height: 2.8em; margin-top: .5rem; }
.small-plots figure { margin-bottom: .6rem; }
.small-plots figcaption { font-size: .8rem; }
.plot { width: 100%; overflow: hidden; }
.table { overflow-x: auto; margin: .6rem 0 1.2rem; -webkit-overflow-scrolling: touch; }
table { border-collapse: collapse; font-size: .92rem; min-width: 100%; }
th, td { text-align: right; padding: .42rem .75rem; border-bottom: 1px solid var(--grid);
  white-space: nowrap; vertical-align: baseline; }
th:first-child { text-align: left; padding-left: 0; white-space: normal; min-width: 8.5rem;
  position: sticky; left: 0; background: var(--page); }
thead th { white-space: normal; vertical-align: bottom; font-weight: 600; color: var(--muted);
  border-bottom: 1px solid var(--rule); }
tbody th { font-weight: 400; }
td .range { display: block; color: var(--muted); font-size: .89em; }
details { border-top: 1px solid var(--rule); padding: .7rem 0; }
summary { cursor: pointer; font-weight: 600; }
pre { background: var(--calm-soft); border-radius: 8px; padding: 1rem; overflow-x: auto;
  font: .82rem/1.55 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
label { font-size: .9rem; color: var(--muted); margin-right: .5rem; }
select { font: inherit; font-size: .95rem; color: var(--text); background: var(--card);
  border: 1px solid var(--rule); border-radius: 6px; padding: .25rem .5rem; max-width: 100%; }
:focus-visible { outline: 2px solid var(--agent); outline-offset: 2px; }
footer { color: var(--muted); font-size: .85rem; padding-top: 2rem; padding-bottom: 3rem; }
@media (prefers-reduced-motion: reduce) { html { scroll-behavior: auto; } }
@media (max-width: 40rem) {
  h2 { margin-top: 2.6rem; }
  table { font-size: .85rem; }
  th, td { padding: .4rem .5rem; }
  th:first-child { min-width: 6.5rem; }
}
@page { size: A4; margin: 14mm; }
@media print {
  body { font-size: 10.5pt; background: #fff; }
  main, header, footer { max-width: none; padding: 0; }
  nav, select, label, .screen { display: none; }
  h2, h3 { break-after: avoid; }
  figure, .verdict, .figures, .note, tr { break-inside: avoid; }
  .table, pre { overflow: visible; }
  table { font-size: 8pt; }
  .figures dd { font-size: 1.2rem; }
  th:first-child { background: none; }
  .plot .svg-container { width: 100% !important; height: auto !important; }
  .plot .main-svg { width: 100% !important; height: 100% !important; }
  .row { grid-template-columns: 1fr 1fr; gap: 0 1.5rem; }
  pre { white-space: pre-wrap; overflow-wrap: anywhere; }
  th, td { padding: .3rem .3rem; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
}
"""
