#!/usr/bin/env python3
"""Runs a command in a terminal and records it as an animated SVG, which a page shows without a script.

    python3 scripts/record_terminal.py docs/images/terminal.svg -- convoy-train --model lenet --dataset mnist

The picture has the text and the times of the real run, divided by --speed; pauses are shortened to --pause seconds. A viewer without
animation, and a reader who prefers none, see the last screen. Needs Python only, and a system with pseudo-terminals.
"""

import argparse
import codecs
import fcntl
import html
import os
import re
import struct
import subprocess
import termios
import time

COLUMNS, ROWS = 100, 24
CHARACTER, LINE, MARGIN, SIZE = 8.0, 19, 14, 13.3  # pixels: a character of a monospaced font is 0.6 of its size
BACKGROUND, INK, PROMPT = "#101820", "#d8dee4", "#7fd18b"
END_SECONDS = 5  # how long the last screen stays
FRAME_SECONDS = 0.2  # between screens: output that comes sooner is part of the screen before
CONTROL = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|[\r\n\b]|\x1b.|[\x00-\x1f]", re.DOTALL)


class Screen:
    """The rows of a terminal. Knows the control characters that the programs write, and ignores colors."""

    def __init__(self, columns=COLUMNS, rows=ROWS):
        self.columns, self.height = columns, rows
        self.rows, self.row, self.column = [""], 0, 0

    def write(self, text):
        at = 0
        for control in CONTROL.finditer(text):
            self._put(text[at:control.start()])
            self._control(control)
            at = control.end()
        self._put(text[at:])

    def visible(self):
        """Returns the rows that fit the window: the last ones."""
        return [row.rstrip() for row in self.rows[-self.height:]]

    def _put(self, text):
        for character in text:
            if self.column == self.columns:  # a long line goes on in the next row
                self._new_line()
                self.column = 0
            row = self.rows[self.row].ljust(self.column)
            self.rows[self.row] = row[:self.column] + character + row[self.column + 1:]
            self.column += 1

    def _new_line(self):
        self.row += 1
        if self.row == len(self.rows):
            self.rows.append("")

    def _control(self, control):
        if control[0] == "\r":
            self.column = 0
        elif control[0] == "\n":
            self._new_line()
        elif control[0] == "\b":
            self.column = max(0, self.column - 1)
        elif control[2] == "K":
            keep = {"": slice(0, self.column), "0": slice(0, self.column)}.get(control[1], slice(0, 0))
            self.rows[self.row] = self.rows[self.row][keep]


def record(command, columns=COLUMNS, rows=ROWS):
    """Runs a command in a pseudo-terminal. Returns its exit code and its output as (seconds, text)."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    decoder, events, begin = codecs.getincrementaldecoder("utf-8")("replace"), [], time.monotonic()
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
                          env={**os.environ, "TERM": "xterm"}) as program:
        os.close(theirs)
        while True:
            try:
                data = os.read(ours, 65536)
            except OSError:  # the program has closed its terminal
                break
            events.append((time.monotonic() - begin, decoder.decode(data)))
    os.close(ours)
    return program.returncode, events


def screens(command_line, events, pause, columns=COLUMNS, rows=ROWS):
    """Returns the screens as (seconds, rows): the prompt with the command, and then one for each event."""
    screen = Screen(columns, rows)
    screen.write(f"$ {command_line}\r\n")
    found, now, last = [(0.0, screen.visible())], 0.0, 0.0
    for seconds, text in events:
        now += min(seconds - last, pause)
        last = seconds
        screen.write(text)
        if (rows_now := screen.visible()) == found[-1][1]:
            continue
        if len(found) > 1 and now < found[-1][0] + FRAME_SECONDS:
            found[-1] = (found[-1][0], rows_now)
        else:
            found.append((now, rows_now))
    return found


def spans(found, end):
    """Returns each text of a row with the times when it is there, as (row, text, from, to)."""
    result, shown = [], {}
    for seconds, rows in [*found, (end, [])]:
        for row in list(shown):
            text, since = shown[row]
            if row >= len(rows) or rows[row] != text:
                if seconds > since:
                    result.append((row, text, since, seconds))
                del shown[row]
        for row, text in enumerate(rows):
            if text and row not in shown:
                shown[row] = (text, seconds)
    return sorted(result)


def to_svg(found, columns=COLUMNS, rows=ROWS):
    """Returns the animated picture of screens."""
    end = found[-1][0] + END_SECONDS
    height = max(len(visible) for _, visible in found)
    width, depth = round(columns * CHARACTER + 2 * MARGIN), height * LINE + 2 * MARGIN
    style, texts = [], []
    for number, (row, text, begin, until) in enumerate(spans(found, end)):
        name, is_last = "", until >= end
        if begin > 0 or not is_last:
            name = f"t{number}"
            steps = [(0.0, "visible" if begin == 0 else "hidden"), (begin, "visible")]
            if not is_last:
                steps.append((until, "hidden"))
            frames = "".join(f"{100 * seconds / end:.2f}%{{visibility:{state}}}" for seconds, state in steps
                             if seconds > 0 or state == "hidden" or begin == 0)
            frames += f"100%{{visibility:{'visible' if is_last else 'hidden'}}}"
            style.append(f"@keyframes {name}{{{frames}}}#{name}{{animation-name:{name}}}")
        attributes = f' id="{name}"' if name else ""
        attributes += "" if is_last else ' visibility="hidden"'
        color = f' fill="{PROMPT}"' if text.startswith("$ ") else ""
        texts.append(f'<text x="{MARGIN}" y="{MARGIN + (row + 1) * LINE - 5}"{attributes}{color}>{html.escape(text)}</text>')
    # visibility by attributes is that of the last screen; the animation overrides it.
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {depth}" width="{width}" height="{depth}">',
        "<style>",
        f"text{{font:{SIZE}px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;white-space:pre}}",
        "@media (prefers-reduced-motion:no-preference){",
        f"text[id]{{animation-duration:{end:.2f}s;animation-timing-function:step-end;animation-iteration-count:infinite}}",
        *style, "}", "</style>",
        f'<rect width="{width}" height="{depth}" rx="8" fill="{BACKGROUND}"/>',
        f'<g fill="{INK}" xml:space="preserve">', *texts, "</g>", "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", help="SVG file to write")
    parser.add_argument("--columns", type=int, default=COLUMNS, help=f"width of the terminal (characters); {COLUMNS}")
    parser.add_argument("--rows", type=int, default=ROWS, help=f"height of the terminal (lines); {ROWS}")
    parser.add_argument("--pause", type=float, default=1.0, help="the longest time without a change (seconds); 1")
    parser.add_argument("--speed", type=float, default=1.0, help="how many times as fast as the run the picture is; 1")
    parser.add_argument("command", nargs="+", help="the command and its arguments, after --")
    options = parser.parse_args()
    if options.columns < 20 or options.rows < 2 or not options.pause > 0 or not options.speed > 0:
        raise SystemExit("record_terminal.py: expected at least 20 columns, 2 rows, and a pause and a speed above 0")
    try:
        code, events = record(options.command, options.columns, options.rows)
    except OSError as error:
        raise SystemExit(f"record_terminal.py: {options.command[0]}: {error.strerror}") from None
    if code != 0:
        raise SystemExit(f"record_terminal.py: {options.command[0]} ended with code {code}: "
                         f"{''.join(text for _, text in events)[-300:].strip()}")
    events = [(seconds / options.speed, text) for seconds, text in events]
    found = screens(" ".join(options.command), events, options.pause, options.columns, options.rows)
    try:
        with open(options.picture, "w", encoding="utf-8") as file:
            file.write(to_svg(found, options.columns, options.rows))
    except OSError as error:
        raise SystemExit(f"record_terminal.py: {options.picture}: {error.strerror}") from None
    print(f"{options.picture}: {len(found)} screens, {found[-1][0]:.1f} s")


if __name__ == "__main__":
    main()
