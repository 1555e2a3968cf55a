#!/usr/bin/env python3
"""Draws the first table of docs/BENCHMARKS.md as bars.

Usage: python3 docs/bars.py

Writes docs/bars-light.svg and docs/bars-dark.svg. The figures are read from the table, so the picture never differs from it.
"""

import html, pathlib, re

WIDTH, LABEL, BAR, GAP, FONT, MARGIN = 820, 190, 15, 18, 13, 16
# Background, text, and the colours of nicstripe, iperf3, aria2 and axel.
THEMES = {
    "light": ("#ffffff", "#1f2328", ("#0969da", "#afb8c1", "#bf8700", "#8250df")),
    "dark": ("#0d1117", "#e6edf3", ("#58a6ff", "#6e7681", "#d29922", "#bc8cff")),
}


def table(page):
    """Returns the tools, and for each row its cables and the tools' shares in per cent."""
    lines = page[page.index("| cables | nicstripe") :].split("\n\n")[0].splitlines()
    header, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    share = lambda cell: float(re.match(r"[\d.]+", cell).group())
    return header[1:], [(cells[0], [share(cell) for cell in cells[1:]]) for cells in rows]


def picture(tools, rows, theme):
    background, foreground, colours = theme
    scale = (WIDTH - LABEL - 3 * MARGIN - 40) / 100
    left, y, body = MARGIN + LABEL, MARGIN, []
    for number, tool in enumerate(tools):
        x = MARGIN + (number % 2) * WIDTH / 2
        body.append(f'<rect x="{x:.0f}" y="{y}" width="12" height="12" fill="{colours[number]}"/>'
                    f'<text x="{x + 18:.0f}" y="{y + 11}">{html.escape(tool)}</text>')
        y += 20 if number % 2 else 0
    y += GAP
    for cables, shares in rows:
        body.append(f'<text x="{MARGIN}" y="{y + len(shares) * BAR / 2 + 5:.0f}">{html.escape(cables)}</text>')
        for colour, share in zip(colours, shares):
            length = share * scale
            body.append(f'<rect x="{left}" y="{y}" width="{length:.1f}" height="{BAR - 3}" fill="{colour}"/>'
                        f'<text x="{left + length + 6:.1f}" y="{y + 11}">{share:.1f}</text>')
            y += BAR
        y += GAP
    body.append(f'<text x="{left}" y="{y}">per cent of theory</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + MARGIN}" role="img">'
        "<title>Share of theory that nicstripe, iperf3, aria2 and axel reach over one to four cables</title>"
        f"<style>text{{font:{FONT}px system-ui,sans-serif;fill:{foreground}}}</style>"
        f'<rect width="100%" height="100%" rx="8" fill="{background}"/>{"".join(body)}</svg>\n'
    )


def main():
    here = pathlib.Path(__file__).resolve().parent
    tools, rows = table((here / "BENCHMARKS.md").read_text())
    for name, theme in THEMES.items():
        (here / f"bars-{name}.svg").write_text(picture(tools, rows, theme))


main()
