"""A picture as one page that stands alone: the SVG, what a point stands for beside it, and the points as a table."""

from __future__ import annotations

from html import escape

from planner.plot.picture import Picture, tick_text
from planner.plot.svg import svg_text

STYLE = """
:root{color-scheme:light dark}body{margin:0 auto;max-width:920px;padding:1rem;
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif}
svg{width:100%;height:auto}.point{cursor:pointer;outline:none}.point:hover,.point:focus{stroke:currentColor;stroke-width:3}
#plan{min-height:6.5em;white-space:pre-line;border-left:4px solid #0072B2;padding:.2em 1em;margin:1em 0}
div{overflow-x:auto}table{border-collapse:collapse;font-size:13px}td,th{padding:.2em .8em;text-align:left;
border-bottom:1px solid #8884;vertical-align:top}td.number{text-align:right;font-variant-numeric:tabular-nums}
"""
# Shows the text that stands in the page; computes nothing.
SCRIPT = """
const plan=document.getElementById('plan');
for(const point of document.querySelectorAll('.point')){
const show=()=>{plan.textContent=point.querySelector('title').textContent};
point.addEventListener('mouseenter',show);point.addEventListener('focus',show);point.addEventListener('click',show);}
"""


def html_text(picture: Picture) -> str:
    """The whole page."""
    title = escape(picture.title)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f'<link rel="icon" href="data:,">\n<style>{STYLE}</style></head>\n<body><main>\n'
        f'{svg_text(picture)}\n<p id="plan" aria-live="polite">Point at a plan, or reach it with the Tab key.</p>\n'
        f"<div>{_table(picture)}</div></main>\n<script>{SCRIPT}</script></body></html>\n"
    )


def _table(picture: Picture) -> str:
    """Every point in a row."""
    head = f"<tr><th>plan</th><th>{escape(picture.x_label)}</th><th>{escape(picture.y_label)}</th><th>choices</th></tr>"
    rows = (
        f'<tr><td>{escape(spot.lines[0])}</td><td class="number">{tick_text(spot.x)}</td>'
        f'<td class="number">{tick_text(spot.y)}</td><td>{escape(spot.lines[-1])}</td></tr>'
        for spot in picture.spots
    )
    return f"<table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>"
