#!/usr/bin/env python3
"""Records `nicstripe demo` in a terminal, and draws what it shows as two animated pictures.

Usage: cargo build --release && python3 docs/picture.py [PROGRAM]

PROGRAM is target/release/nicstripe by default. Writes docs/copy-light.svg and docs/copy-dark.svg. Every
character, colour and time of the pictures is the program's own. Needs nothing but Python's library.
"""

import fcntl, html, os, pathlib, pty, re, select, struct, subprocess, sys, termios, time

COLUMNS, ROWS = 84, 32
CELL, LINE, FONT, MARGIN = 8.43, 19, 14, 16
# Longest time without a new frame, in seconds; the last frame stays for LAST.
FRAME, LAST = 0.2, 6.0
# Background, text, and the eight colours of ANSI.
THEMES = {
    "light": ("#ffffff", "#1f2328", "#1f2328 #cf222e #116329 #7d4e00 #0969da #8250df #1b7c83 #6e7781"),
    "dark": ("#0d1117", "#e6edf3", "#484f58 #ff7b72 #3fb950 #d29922 #58a6ff #bc8cff #39c5cf #b1bac4"),
}


class Screen:
    """The part of a terminal that the program uses: lines, colours, movements, deletions."""

    def __init__(self):
        self.rows, self.row, self.column, self.style = [[]], 0, 0, ""

    def feed(self, text):
        for escape, code, final, char in re.findall(r"(\x1b\[([0-9;?]*)([A-Za-z]))|([^\x1b])", text):
            if escape:
                self.control(code, final)
            elif char == "\r":
                self.column = 0
            elif char == "\n":
                self.row += 1
                self.fill()
            else:
                self.put(char)

    def fill(self):
        while len(self.rows) <= self.row:
            self.rows.append([])

    def put(self, char):
        if self.column == COLUMNS:
            self.row, self.column = self.row + 1, 0
            self.fill()
        line = self.rows[self.row]
        line.extend([(" ", "")] * (self.column + 1 - len(line)))
        line[self.column] = (char, self.style)
        self.column += 1

    def control(self, code, final):
        count = int(code) if code.isdigit() else 1
        if final == "A":
            self.row = max(0, self.row - count)
        elif final == "B":
            self.row += count
            self.fill()
        elif final == "C":
            self.column += count
        elif final == "D":
            self.column = max(0, self.column - count)
        elif final == "G":
            self.column = count - 1
        elif final == "K":
            self.rows[self.row] = [] if code == "2" else self.rows[self.row][: self.column]
        elif final == "J":
            self.rows[self.row] = self.rows[self.row][: self.column]
            del self.rows[self.row + 1 :]
        elif final == "m":
            self.style = self.styled(code)

    def styled(self, code):
        style = set(self.style.split())
        for number in (int(part or 0) for part in code.split(";")):
            if number == 0:
                style = set()
            elif number in (1, 2):
                style.add("bd"[number - 1])
            elif 30 <= number <= 37:
                style = {s for s in style if not s.startswith("c")} | {f"c{number - 30}"}
        return " ".join(sorted(style))

    def frame(self):
        return [list(line) for line in self.rows]


def record(program):
    """Runs the demo; returns its frames, each with its time in seconds."""
    child, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    demo = subprocess.Popen([program, "demo"], stdin=end, stdout=end, stderr=end, start_new_session=True,
                            env={**os.environ, "TERM": "xterm-256color"})
    os.close(end)
    screen, frames, begun, pending = Screen(), [], time.monotonic(), b""
    screen.feed("$ nicstripe demo\r\n")
    while True:
        if select.select([child], [], [], FRAME)[0]:
            try:
                pending += os.read(child, 65536)
            except OSError:
                break
            text = pending.decode(errors="ignore")
            # An escape sequence or a character may be cut in two.
            if re.search(r"\x1b[^A-Za-z]*$", text) or len(text.encode()) < len(pending):
                continue
            screen.feed(text)
            pending = b""
        now = time.monotonic() - begun
        if not frames or now - frames[-1][0] >= FRAME:
            frames.append((now, screen.frame()))
    frames.append((time.monotonic() - begun, screen.frame()))
    if demo.wait() != 0:
        sys.exit(f"{program} demo ended with {demo.returncode}")
    return frames


def spans(line):
    """Draws a line: one element for each stretch of one style, at its own column."""
    drawn, at = [], 0
    while at < len(line):
        end = at
        while end < len(line) and line[end][1] == line[at][1]:
            end += 1
        text = "".join(char for char, _ in line[at:end])
        if text.strip():
            style = f' class="{line[at][1]}"' if line[at][1] else ""
            drawn.append(f'<tspan x="{MARGIN + at * CELL:.1f}" textLength="{len(text) * CELL:.1f}"{style}>{html.escape(text)}</tspan>')
        at = end
    return "".join(drawn)


def picture(frames, theme):
    """Returns the pictures' text: every distinct line once, with the times at which it is shown."""
    background, foreground, colours = theme
    total = frames[-1][0] + LAST
    shown = {}
    for (begin, lines), (end, _) in zip(frames, frames[1:] + [(total, None)]):
        for row, line in enumerate(lines):
            drawn = spans(line)
            times = shown.setdefault((row, drawn), [])
            if drawn and times and times[-1][1] == begin:
                times[-1][1] = end
            elif drawn:
                times.append([begin, end])
    rows = max(len(lines) for _, lines in frames)
    height, width = rows * LINE + 2 * MARGIN, COLUMNS * CELL + 2 * MARGIN
    moves, body = [], []
    for number, ((row, drawn), times) in enumerate(sorted(shown.items())):
        if not times:
            continue
        y = MARGIN + row * LINE + FONT
        if times == [[frames[0][0], total]]:
            body.append(f'<text y="{y}">{drawn}</text>')
            continue
        keys = [] if times[0][0] == 0 else ["0%{opacity:0}"]
        for begin, end in times:
            keys.append(f"{100 * begin / total:.2f}%{{opacity:1}}")
            if end < total:
                keys.append(f"{100 * end / total:.2f}%{{opacity:0}}")
        moves.append(f"@keyframes k{number}{{{''.join(keys)}}}#t{number}{{animation:k{number} {total:.1f}s step-end infinite}}")
        # A reader without animations sees the last frame.
        still = "" if times[-1][1] == total else ' opacity="0"'
        body.append(f'<text id="t{number}" y="{y}"{still}>{drawn}</text>')
    classes = "".join(f".c{n}{{fill:{colour}}}" for n, colour in enumerate(colours.split()))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img">'
        "<title>nicstripe demo: copies over two and over four gigabit cables, with a bar for each</title>"
        f"<style>text{{font:{FONT}px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:{foreground};white-space:pre}}"
        f".b{{font-weight:bold}}.d{{opacity:.6}}{classes}"
        f"@media (prefers-reduced-motion:no-preference){{{''.join(moves)}}}</style>"
        f'<rect width="100%" height="100%" rx="8" fill="{background}" stroke="#8b949e" stroke-opacity=".4"/>{"".join(body)}</svg>\n'
    )


def main():
    here = pathlib.Path(__file__).resolve().parent
    frames = record(sys.argv[1] if len(sys.argv) > 1 else str(here.parent / "target/release/nicstripe"))
    for name, theme in THEMES.items():
        (here / f"copy-{name}.svg").write_text(picture(frames, theme))


main()
