#!/usr/bin/env python3
"""Draws the figures of the book from data/counts.json, in pure Python: python3 learn/book/figures/draw.py

A drawing that shows a count computes it from what it draws, and fails if cuemu has counted something else.
"""
import html
import json
import pathlib

HERE = pathlib.Path(__file__).resolve().parent
COUNTS = HERE.parent / "data" / "counts.json"
INK, GRAY, PALE, BLUE, ORANGE = "#333333", "#888888", "#e6e6e6", "#2a78b5", "#c2571a"
SECTOR, FLOAT, BANKS, LANES = 32, 4, 32, 32  # bytes, bytes, banks of 4 bytes, lanes of a warp


class Picture:
    def __init__(self, width, height, title):
        self.parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
                      f'font-family="sans-serif" font-size="12" role="img">', f"<title>{html.escape(title)}</title>",
                      f'<rect width="{width}" height="{height}" fill="#ffffff"/>']

    def rect(self, x, y, width, height, fill, stroke="none"):
        self.parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{fill}" stroke="{stroke}"/>')

    def text(self, x, y, text, anchor="start", fill=INK, size=12):
        self.parts.append(f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{fill}" font-size="{size}">{html.escape(str(text))}</text>')

    def line(self, x1, y1, x2, y2, color=INK):
        self.parts.append(f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{color}"/>')

    def arrow(self, x1, y1, x2, y2, color=INK):
        """A horizontal arrow."""
        self.line(x1, y1, x2, y2, color)
        back = -7 if x2 > x1 else 7
        self.parts.append(f'<path d="M{x2} {y2} L{x2 + back} {y2 - 4} L{x2 + back} {y2 + 4} Z" fill="{color}"/>')

    def svg(self):
        return "\n".join([*self.parts, "</svg>"]) + "\n"


def require(drawn, counted, what):
    if drawn != counted:
        raise ValueError(f"{what}: the figure shows {drawn}, cuemu has counted {counted}")


def path_of_data(_counts):
    picture = Picture(700, 230, "The host allocates, copies, launches and copies back")
    for x, name, memory in ((20, "host", "std::vector host(1000)"), (440, "device", "x, from cudaMalloc")):
        picture.rect(x, 30, 240, 190, "none", GRAY)
        picture.text(x + 120, 22, name, "middle", size=14)
        picture.text(x + 120, 66, memory, "middle", size=11)
        for i in range(8):
            picture.rect(x + 40 + 20 * i, 74, 20, 22, PALE, GRAY)
        picture.text(x + 120, 112, "4,000 bytes", "middle", GRAY, 11)
    steps = (("1  cudaMalloc", 52, True), ("2  cudaMemcpy", 86, True), ("3  twice<<<4, 256>>>(x)", 150, True), ("4  cudaMemcpy", 196, False))
    for text, y, is_to_device in steps:
        picture.text(350, y - 6, text, "middle", size=11)
        picture.arrow(*((264, y, 436, y) if is_to_device else (436, y, 264, y)), BLUE)
    for i in range(8):
        picture.rect(480 + 20 * i, 150, 14, 14, BLUE)
    picture.text(560, 180, "threads: x[i] = 2 * x[i]", "middle", size=11)
    return picture


def grid(counts):
    n, blocks, threads = 1000, counts["saxpy.cu"]["saxpy"]["blocks"], counts["saxpy.cu"]["saxpy"]["threads"]
    picture = Picture(760, 250, "Four blocks of eight warps of 32 lanes; the last warp has 8 lanes that work")
    warps, working, requests = threads // LANES, 0, 0
    for block in range(blocks):
        left = 20 + 184 * block
        picture.text(left + 84, 20, f"block {block}", "middle", size=13)
        picture.rect(left - 4, 28, 176, 158, "none", GRAY)
        for warp in range(warps):
            active = [i for i in range(LANES) if block * threads + warp * LANES + i < n]
            working, requests = working + len(active), requests + bool(active)
            for lane in range(LANES):
                picture.rect(left + 5.25 * lane, 34 + 19 * warp, 4.25, 14, BLUE if lane in active else PALE)
        picture.text(left + 84, 202, f"elements {block * threads} to {min(n, (block + 1) * threads) - 1}", "middle", GRAY, 11)
    require((requests, working), tuple(counts["saxpy.cu"]["saxpy"]["global_stores"][unit] for unit in ("requests", "lanes")), "grid")
    picture.text(20, 232, "a row: one warp of 32 lanes")
    picture.rect(230, 221, 14, 12, BLUE)
    picture.text(250, 232, f"works ({working:,} lanes)")
    picture.rect(390, 221, 14, 12, PALE)
    picture.text(410, 232, f"no element, the guard is false ({blocks * threads - working} lanes)")
    return picture


def sectors(counts):
    shown, cell = 8, 10  # lanes; width of a float
    picture = Picture(760, 330, "Lanes of one request and the sectors that they need, for three strides")
    for row, stride in enumerate((1, 2, 8)):
        top = 20 + 104 * row
        touched = sorted({lane * stride * FLOAT // SECTOR for lane in range(LANES)})
        load = counts[f"stride.cu {stride}"]["load"]["global_loads"]
        require(len(touched) * load["requests"], load["sectors"], f"sectors, stride {stride}")
        picture.text(16, top, f"stride {stride}: 32 lanes need {len(touched)} sectors, {len(touched) * SECTOR:,} bytes for {LANES * FLOAT}", size=13)
        first = sorted({lane * stride * FLOAT // SECTOR for lane in range(shown)})
        for sector in range(max(first) + 1):
            picture.rect(40 + 8 * cell * sector, top + 46, 8 * cell, 20, "#f6dccd" if sector in first else "#ffffff", GRAY)
        for lane in range(shown):
            x = 40 + cell * (lane * stride + 0.5)
            picture.rect(x - cell / 2 + 1, top + 48, cell - 2, 16, BLUE)
            picture.line(x, top + 30, x, top + 46, BLUE)
            picture.text(x, top + 26, lane, "middle", size=10 if stride > 1 else 9)
    picture.text(16, 320, "the first 8 lanes; a box is a sector of 32 bytes (8 floats): blue is what a lane asks for, orange what is moved besides", fill=GRAY, size=11)
    return picture


def banks(counts):
    shown = 8
    picture = Picture(760, 290, "The banks that lanes read in a column, with rows of 32 and of 33 words")
    for at, (kernel, pitch) in enumerate((("tile", 32), ("padded", 33))):
        left, per_bank = 30 + 370 * at, {}
        for lane in range(LANES):
            per_bank.setdefault(lane * pitch % BANKS, set()).add(lane * pitch)
        load = counts["transpose.cu"][kernel]["shared_loads"]
        wavefronts = max(len(words) for words in per_bank.values())
        require(wavefronts * load["requests"], load["wavefronts"], f"banks, {kernel}")
        picture.text(left, 20, f"float s[32][{pitch}]: {wavefronts} wavefront{'s' if wavefronts > 1 else ''} per request", size=13)
        for lane in range(shown):
            picture.text(left + 42, 64 + 24 * lane, f"lane {lane}", "end", size=11)
            for bank in range(shown + 2):
                picture.rect(left + 50 + 28 * bank, 50 + 24 * lane, 26, 20, BLUE if bank == lane * pitch % BANKS else PALE)
                word = lane * pitch + (bank - lane * pitch) % BANKS
                picture.text(left + 63 + 28 * bank, 64 + 24 * lane, word, "middle", "#ffffff" if bank == lane * pitch % BANKS else GRAY, 10)
        for bank in range(shown + 2):
            picture.text(left + 63 + 28 * bank, 42, bank, "middle", size=11)
        picture.text(left + 42, 42, "bank", "end", size=11)
    picture.text(30, 270, "column 0 of the tile, 8 of 32 lanes and 10 of 32 banks; a number is that of a word, blue is what the lane reads", fill=GRAY, size=11)
    return picture


def ladder(counts):
    kernels = ("modulo", "strided", "sequential", "many", "shuffles")
    picture = Picture(760, 250, "Wavefronts and lanes of the shared loads of five rungs")
    for left, title, unit, largest in ((110, "wavefronts of shared loads", "wavefronts", 24320), (480, "lanes that work, of 32", "lanes_per_request", 32)):
        picture.text(left, 22, title, size=13)
        for at, kernel in enumerate(kernels):
            value = counts["sum.cu"][kernel]["shared_loads"][unit]
            if left == 110:
                picture.text(left - 10, 56 + 40 * at, f"{at} {kernel}", "end")
            picture.rect(left, 40 + 40 * at, round(max(1, 220 * value / largest), 1), 24, BLUE if left == 110 else ORANGE)
            picture.text(left + round(220 * value / largest, 1) + 6, 56 + 40 * at, f"{value:,}", size=11)
    return picture


FIGURES = {"path-of-data": path_of_data, "grid": grid, "sectors": sectors, "banks": banks, "sum": ladder}


def drawn():
    """Returns the text of each figure, by the name of its file."""
    counts = json.loads(COUNTS.read_text(encoding="utf-8"))
    return {f"{name}.svg": draw(counts).svg() for name, draw in FIGURES.items()}


if __name__ == "__main__":
    for name, svg in drawn().items():
        (HERE / name).write_text(svg, encoding="utf-8")
