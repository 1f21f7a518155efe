#!/usr/bin/env python3
"""Draws the figures of the book from data/counts.json, in pure Python: python3 learn/book/figures/draw.py

A drawing that shows a count computes it from what it draws, and fails if cuemu has counted something else.
"""
import html
import json
import math
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


def pending(counts):
    frames = counts["graph.cpp"]["frames"]
    places = {"x": (0, 2), "y": (2, 2), "exp": (0, 1), "mul": (2, 1), "add": (1, 0.4), "sum": (1, -0.6)}
    edges = (("add", "sum"), ("exp", "add"), ("mul", "add"), ("x", "exp"), ("x", "mul"), ("y", "mul"))
    picture = Picture(760, 560, "Six steps of the backward pass of z = sum(x y + exp(x))")
    require(len(frames), len(places), "pending")
    for at, frame in enumerate(frames.values()):
        left, top = 50 + 250 * (at % 3), 80 + 270 * (at // 3)
        picture.text(left - 30, top - 54, f"{at + 1}: {next(name for name, node in frame.items() if node['now'])} runs", size=13)
        where = {name: (left + 75 * x, top + 30 + 58 * y) for name, (x, y) in places.items()}
        for lower, upper in edges:
            picture.line(where[lower][0], where[lower][1], where[upper][0], where[upper][1], GRAY)
        for name, (x, y) in where.items():
            node = frame[name]
            fill = ORANGE if node["now"] else BLUE if node["has"] else PALE
            picture.rect(x - 30, y - 16, 60, 32, fill, GRAY)
            color = INK if fill == PALE else "#ffffff"
            picture.text(x, y - 3, name, "middle", color, 11)
            gradient = f"{node['gradient']:g}" if node["has"] else "?"
            picture.text(x, y + 11, f"d = {gradient}", "middle", color, 11)
            picture.text(x + 33, y + 4, node["pending"], "start", INK, 11)
    for x, fill, text in ((20, ORANGE, "runs now"), (130, BLUE, "has a gradient"), (270, PALE, "has none yet")):
        picture.rect(x, 532, 14, 12, fill, GRAY)
        picture.text(x + 20, 543, text)
    picture.text(400, 543, "number to the right: uses that are pending; d: the gradient")
    return picture


def saved(counts):
    picture = Picture(760, 270, "Activations alive during a step of 12 layers, for three strategies")
    for at, (name, title) in enumerate((("keeps_all", "nothing is freed"), ("frees", "freed after use"), ("checkpoints_4", "segments of 4"))):
        left, curve, peak = 40 + 245 * at, counts["saved.cpp"][name]["curve"], counts["saved.cpp"][name]["peak"]
        require(max(curve), peak, f"saved, {name}")
        picture.text(left, 22, f"{title}: at most {peak}", size=13)
        width = 200 / len(curve)
        for i, alive in enumerate(curve):
            picture.rect(round(left + width * i, 2), 230 - 8 * alive, round(width - 0.6, 2), 8 * alive, ORANGE if alive == peak else BLUE)
        picture.line(left, 230, left + 200, 230)
        for value in (0, 12, 24):
            picture.text(left - 6, 234 - 8 * value, value, "end", GRAY, 10)
    picture.text(40, 258, "height: activations and gradients alive; time goes to the right, forward pass first; orange: the peak", fill=GRAY, size=11)
    return picture


def all_reduce(counts):
    ways = {"gather_and_broadcast": GRAY, "doubling": ORANGE, "ring": BLUE, "halving": "#3c8f4e", "direct": INK}
    picture = Picture(760, 330, "Time of an all-reduce of 8 ranks, against its size")
    left, bottom, sizes = 90, 280, (1000, 10000, 100000, 1000000, 4000000)

    def x_of(size):
        return round(left + 130 * math.log10(size / 1000), 1)

    def y_of(microseconds):
        return round(bottom - 75 * math.log10(microseconds / 30), 1)
    for microseconds in (100, 1000, 10000):
        picture.line(left, y_of(microseconds), x_of(4000000), y_of(microseconds), PALE)
        picture.text(left - 8, y_of(microseconds) + 4, f"{microseconds:,}", "end", GRAY, 11)
    for size in sizes:
        picture.text(x_of(size), bottom + 18, f"{size // 1000:,} KB" if size < 10**6 else f"{size // 10**6} MB", "middle", GRAY, 11)
    picture.line(left, bottom, x_of(4000000), bottom)
    picture.text(left, 22, "microseconds; 8 ranks, 20 microseconds per message, 1 GB/s", size=13)
    for at, (way, color) in enumerate(ways.items()):
        times = [counts["allreduce.cpp"]["8_hosts"][way][str(size)]["microseconds"] for size in sizes]
        for i in range(len(sizes) - 1):
            picture.line(x_of(sizes[i]), y_of(times[i]), x_of(sizes[i + 1]), y_of(times[i + 1]), color)
        for size, microseconds in zip(sizes, times):
            picture.rect(x_of(size) - 3, y_of(microseconds) - 3, 6, 6, color)
        picture.rect(590, 56 + 20 * at, 12, 12, color)
        picture.text(608, 66 + 20 * at, way.replace("_", " "))
    return picture


def gemm(counts):
    m, n, k = 128, 128, 64
    # One thread per element: a warp is 2 rows of 16 columns. Tiles: each of m n / T^2 blocks loads (m + n) rows or columns of
    # T x k elements, 8 to a sector.
    def sectors(tile):
        return m * n // 32 * k * 4 if tile == 1 else m * n // tile ** 2 * 2 * tile * k // 8
    picture = Picture(760, 260, "Sectors of the loads of a GEMM, against the side of its tile")
    for tile, kernel in ((1, "columns"), (16, "tile"), (64, "registers")):
        require(sectors(tile), counts["gemm.cu"][kernel]["global_loads"]["sectors"], f"gemm, {kernel}")
    picture.text(20, 22, "sectors of loads; 128 x 128 elements, k = 64; orange: counted, blue: computed only", size=13)
    for at, (tile, kernel) in enumerate(((1, "columns"), (8, ""), (16, "tile"), (32, ""), (64, "registers"), (128, ""))):
        width = round(480 * sectors(tile) / sectors(1), 1)
        picture.text(150, 56 + 32 * at, f"{tile} x {tile}" if tile > 1 else "no tile", "end")
        picture.rect(160, 42 + 32 * at, max(width, 1), 20, ORANGE if kernel else BLUE)
        picture.text(168 + width, 56 + 32 * at, f"{sectors(tile):,}" + (f"  {kernel}" if kernel else ""), size=11)
    picture.text(20, 250, f"the matrices a and b have {(m * k + k * n) // 8:,} sectors", fill=GRAY, size=11)
    return picture


def fragments(counts):
    cell, lane = 24, 5
    m, n, k = 128, 128, 64
    picture = Picture(760, 560, "The elements of a, b and d that each lane of a warp has")

    def lane_of(matrix, row, column):
        """The lane, and the number of its register. Two neighbors along k share a register of a and of b."""
        if matrix == "b":
            return column * 4 + row % 8 // 2, row // 8
        if matrix == "a":
            return row % 8 * 4 + column % 8 // 2, row // 8 + 2 * (column // 8)
        return row % 8 * 4 + column // 2, 2 * (row // 8) + column % 2

    # Element by element, a load touches the sectors of its 32 lanes: rows of k numbers of 2 bytes in a, of n in b.
    touched = 0
    for matrix, rows, columns, pitch in (("a", 16, 16, k), ("b", 16, 8, n)):
        loads = {}
        for row in range(rows):
            for column in range(columns):
                register = lane_of(matrix, row, column)[1]
                loads.setdefault((register, (row if matrix == "b" else column) % 2), set()).add((row * pitch + column) * 2 // SECTOR)
        touched += sum(len(sectors) for sectors in loads.values())
    require(touched * (m // 16) * (n // 8) * (k // 16), counts["tensor_cores.cu"]["fragments"]["global_loads"]["sectors"], "fragments")
    for matrix, left, top, rows, columns in (("a", 40, 150, 16, 16), ("b", 480, 40, 16, 8), ("d", 480, 456, 4, 8)):
        shown = {"d": [0, 1, 8, 9]}.get(matrix, range(rows))
        for y, row in enumerate(shown):
            for column in range(columns):
                of, register = lane_of(matrix, row, column)
                picture.rect(left + cell * column, top + cell * y, cell - 1, cell - 1, BLUE if of == lane else PALE)
                picture.text(left + cell * column + cell / 2, top + cell * y + 16, f"{matrix}{register}" if of == lane else of, "middle",
                             "#ffffff" if of == lane else GRAY, 10)
            picture.text(left - 6, top + cell * y + 16, row, "end", size=10)
        for column in range(columns):
            picture.text(left + cell * column + cell / 2, top - 6, column, "middle", size=10)
    picture.text(40, 130, "a: 16 rows, k to the right", size=13)
    picture.text(480, 20, "b: k downwards, 8 columns", size=13)
    picture.text(682, 486, "d: rows 0,", size=12)
    picture.text(682, 504, "1, 8 and 9", size=12)
    picture.text(40, 30, "a number is the lane that has the element;", size=12)
    picture.text(40, 48, "blue: the fragment of lane 5 (g = 1, t = 1),", size=12)
    picture.text(40, 66, "a0 to a3, b0 and b1, d0 to d3 its registers", size=12)
    return picture


def fusion(counts):
    versions = (("six kernels", ("add_bias", "relu", "row_maximum", "exponentials", "row_sum", "divide")),
                ("two kernels", ("add_bias_relu", "softmax")), ("one kernel", ("fused",)))
    picture = Picture(760, 230, "Sectors of loads and stores of six kernels, of two and of one")
    n, scale = 128 * 512 // 8, 0.0058  # sectors of the array; pixels per sector
    for at, (name, kernels) in enumerate(versions):
        y, x, total = 40 + 54 * at, 110, 0
        picture.text(100, y + 22, name, "end")
        for kernel in kernels:
            for kind, color in (("global_loads", BLUE), ("global_stores", ORANGE)):
                sectors = counts["fusion.cu"][kernel][kind]["sectors"]
                picture.rect(round(x, 1), y, max(round(scale * sectors - 1, 1), 0.5), 34, color)
                x, total = x + scale * sectors, total + sectors
            picture.line(round(x - 0.5, 1), y - 5, round(x - 0.5, 1), y + 39, GRAY)
        picture.text(round(x + 8, 1), y + 22, f"{total:,}")
    require(counts["fusion.cu"]["fused"]["global_stores"]["sectors"], n, "fusion, stores")
    require(counts["fusion.cu"]["fused"]["global_loads"]["sectors"], 2 * n, "fusion, loads: x and the bias")
    picture.rect(110, 203, 14, 12, BLUE)
    picture.text(130, 214, "sectors of loads")
    picture.rect(260, 203, 14, 12, ORANGE)
    picture.text(280, 214, "sectors of stores")
    picture.text(420, 214, "a line: the end of a kernel")
    return picture


def launches(counts):
    picture = Picture(760, 230, "Six kernels of two microseconds, launched one by one and as a graph")
    left, scale, data = 110, 22, counts["launches.cpp"]
    for at, name in enumerate(("six launches", "six in a graph")):
        top, kernels = 40 + 90 * at, data[name]
        require([end - begin for _, begin, end in kernels], [2] * 6, f"launches, {name}")
        picture.text(left, top - 10, f"{name}: {kernels[-1][2]:g} microseconds", size=13)
        picture.text(left - 10, top + 15, "host", "end", size=11)
        picture.text(left - 10, top + 41, "device", "end", size=11)
        begins = [0] + [launched for launched, *_ in kernels[:-1]]
        for before, (launched, begin, end) in zip(begins, kernels):
            if launched > before:
                picture.rect(left + scale * before, top, scale * (launched - before) - 1, 20, GRAY)
            picture.rect(left + scale * begin, top + 26, scale * (end - begin) - 1, 20, BLUE)
    picture.rect(left, 205, 14, 12, GRAY)
    picture.text(left + 20, 216, "a launch")
    picture.rect(left + 130, 205, 14, 12, BLUE)
    picture.text(left + 150, 216, "a kernel; white: the device waits")
    return picture


def overlap(counts):
    picture = Picture(760, 260, "Communication of four plans, during the backward pass and after it")
    left, scale, end = 130, 13, 12  # pixels per millisecond; milliseconds of the backward pass
    picture.rect(left, 34, scale * end, 20, PALE, GRAY)
    picture.text(left - 10, 49, "backward pass", "end")
    for at, (limit, name) in enumerate((("1", "each alone"), ("1000", "1 MB"), ("4000", "4 MB"), ("12000", "one bucket"))):
        y, plan = 70 + 40 * at, counts["overlap.cpp"][limit]
        require(round(plan["times"][-1][1] - end, 2), plan["exposed"], f"overlap, {name}")
        picture.text(left - 10, y + 15, name, "end")
        for begin, stop in plan["times"]:
            picture.rect(round(left + scale * begin, 1), y, round(scale * (stop - begin) - 1, 1), 20, BLUE if stop <= end else ORANGE)
        picture.text(round(left + scale * plan["times"][-1][1] + 6, 1), y + 15, f"{plan['exposed']:.2f} ms exposed", size=11)
    picture.line(left + scale * end, 26, left + scale * end, 226)
    picture.text(left, 248, "a box: the addition of a bucket over 64 ranks; orange: those that end after the backward pass", fill=GRAY, size=11)
    return picture


def step(counts):
    sizes = counts["training.cpp"]["bytes"]
    batch, pixels, classes = 50, 64, 10
    require([FLOAT * batch * pixels, FLOAT * batch * classes, FLOAT * (pixels + 1) * classes],
            [sizes[name] for name in ("images", "logits", "weights")], "step")
    picture = Picture(760, 210, "One step of a training: forward, loss, backward, update")
    for x, y, width, name, under in ((130, 40, 110, "forward", "50 x 64 x 10"), (330, 40, 110, "cross-entropy", "mean of 50"),
                                     (530, 40, 110, "backward", "50 x 64 x 10"), (330, 140, 110, "update", "650 weights")):
        picture.rect(x, y, width, 44, PALE, GRAY)
        picture.text(x + width / 2, y + 19, name, "middle")
        picture.text(x + width / 2, y + 35, under, "middle", GRAY, 10)
    for x1, x2, y, text in ((20, 128, 62, f"images {sizes['images']:,}"), (242, 328, 62, f"logits {sizes['logits']:,}"),
                            (442, 528, 62, f"d logits {sizes['logits']:,}")):
        picture.arrow(x1, y, x2, y, BLUE)
        picture.text((x1 + x2) / 2, y - 8, text, "middle", size=11)
    picture.line(585, 84, 585, 162, BLUE)
    picture.arrow(585, 162, 442, 162, BLUE)
    picture.text(513, 180, f"gradients {sizes['weights']:,}", "middle", size=11)
    picture.line(330, 162, 185, 162, ORANGE)
    picture.line(185, 162, 185, 84, ORANGE)
    picture.text(258, 180, f"weights {sizes['weights']:,}", "middle", ORANGE, 11)
    picture.text(20, 202, "numbers at arrows: bytes; orange: the weights of the next step", fill=GRAY, size=11)
    return picture


def rates(counts):
    left, bottom, colors = 60, 240, {"0.01": GRAY, "0.1": BLUE, "2": "#3c8f4e", "10": ORANGE}
    picture = Picture(760, 280, "The loss during 200 steps, for four learning rates")
    picture.text(left, 20, "loss, mean of 10 steps; 10 and more is drawn as 10", size=13)
    for loss in (0, 2, 4, 6, 8, 10):
        picture.line(left, bottom - 20 * loss, left + 500, bottom - 20 * loss, PALE)
        picture.text(left - 8, bottom - 20 * loss + 4, loss, "end", GRAY, 11)
    for at in (0, 50, 100, 150, 200):
        picture.text(left + 2.5 * at, bottom + 18, at, "middle", GRAY, 11)
    picture.text(left + 500, bottom + 34, "steps", "end", GRAY, 11)
    for at, (rate, color) in enumerate(colors.items()):
        run = counts["training.cpp"][rate]
        places = [(round(left + 2.5 * (10 * i + 5), 1), round(bottom - 20 * loss, 1)) for i, loss in enumerate(run["losses"])]
        for begin, end in zip(places, places[1:]):
            picture.line(*begin, *end, color)
        picture.rect(590, 60 + 24 * at, 12, 12, color)
        picture.text(608, 70 + 24 * at, f"rate {rate}: {run['right'] / 10:.1f} % right")
    return picture


def layout(counts):
    rows, columns, channels, cell = 2, 3, 3, 38
    require([5 * 3, 3, 1], counts["tensor.cpp"]["image"]["stride"], "layout, channels last")
    require([1, 5 * 3, 3], counts["tensor.cpp"]["channels first"]["stride"], "layout, a view with the channels first")
    picture = Picture(760, 190, "An image of 2 x 3 pixels with 3 channels in memory, channels last and channels first")
    for at, (name, strides) in enumerate((("channels last: strides 9, 3, 1", (9, 3, 1)), ("channels first: strides 3, 1, 6", (3, 1, 6)))):
        top = 34 + 78 * at
        picture.text(20, top - 10, name, size=13)
        for row in range(rows):
            for column in range(columns):
                for channel in range(channels):
                    place = sum(i * stride for i, stride in zip((row, column, channel), strides))
                    picture.rect(20 + cell * place, top, cell - 2, 30, (BLUE, ORANGE, "#3c8f4e")[channel])
                    picture.text(20 + cell * place + cell / 2 - 1, top + 19, f"{row},{column}", "middle", "#ffffff", 11)
    picture.text(20, 180, "a box is a float, with the row and column of its pixel; the color is the channel; addresses grow to the right", fill=GRAY, size=11)
    return picture


def pipeline(counts):
    left, scale, colors = 130, 40, (GRAY, BLUE, ORANGE)
    picture = Picture(760, 270, "Copies and kernels of four chunks, on one stream and on three")
    for at, streams in enumerate((1, 3)):
        run = counts["pipeline.cpp"][f"{streams}_streams_4_chunks"]
        top = 40 + 110 * at
        require(max(end for *_, end in run["operations"]), run["end"], f"pipeline, {streams} streams")
        picture.text(20, top - 10, f"{streams} stream{'s' if streams > 1 else ''}: {run['end']:.1f} ms", size=13)
        for kind, name in enumerate(("copy to device", "kernel", "copy back")):
            picture.text(left - 10, top + 16 + 26 * kind, name, "end", size=11)
        for chunk, kind, begin, end in run["operations"]:
            picture.rect(round(left + scale * begin, 1), top + 2 + 26 * kind, round(scale * (end - begin) - 1, 1), 20, colors[kind])
            picture.text(round(left + scale * (begin + end) / 2, 1), top + 17 + 26 * kind, chunk, "middle", "#ffffff", 11)
    picture.text(20, 258, "a box is one operation of a chunk, 0 to 3; time goes to the right", fill=GRAY, size=11)
    return picture


def gradients(counts):
    run, left, bottom, step = counts["formats.cpp"], 60, 200, 13
    by_exponent = {int(exponent): number for exponent, number in run["gradients"].items()}
    # Below 2^-25, half of the smallest number of f16, everything is rounded to 0.
    require(sum(number for exponent, number in by_exponent.items() if exponent < -25), run["f16"]["zero"], "gradients")
    picture = Picture(760, 262, "Gradients by their size, without a scale and with one")
    picture.text(left, 22, "number of gradients with the size 2^e; 8,192 in all", size=13)
    for shift, place in ((0, "as they are"), (16, "times 65,536")):
        for exponent, number in by_exponent.items():
            at = exponent + shift
            picture.rect(left + step * (at + 40), round(bottom - number / 12, 1), step - 2, round(number / 12, 1), ORANGE if at < -25 else GRAY if at < -14 else BLUE)
        picture.text(left + step * (14 + shift), bottom - 132, place, "middle", size=11)
    picture.line(left, bottom, left + step * 50, bottom)
    for e in range(-40, 10, 5):
        picture.text(left + step * (e + 40) + 6, bottom + 16, e, "middle", GRAY, 11)
    for x, fill, text in ((60, ORANGE, "0 in f16"), (180, GRAY, "subnormal in f16, with fewer digits"), (430, BLUE, "all digits of f16")):
        picture.rect(x, 236, 14, 12, fill)
        picture.text(x + 20, 247, text)
    return picture


def mutants(counts):
    data, tests = counts["mutants.cu"], ("ones", "row", "rows", "sizes", "large")
    picture = Picture(760, 350, "Which of five tests, and of the checks of accesses, find nine mutants")
    require([any(each["tests"]) for each in data.values()].count(False), 2, "mutants: none, and the one that no test finds")
    for at, name in enumerate((*tests, "cuemu check")):
        picture.text(310 + 72 * at, 26, name, "middle", size=12)
    for row, (name, found) in enumerate(data.items()):
        y = 38 + 28 * row
        picture.text(262, y + 16, "the kernel itself" if name == "none" else name, "end")
        for at, is_found in enumerate([*found["tests"], bool(found["check"])]):
            picture.rect(278 + 72 * at, y, 64, 24, (ORANGE if at == 5 else BLUE) if is_found else PALE)
            if at == 5 and is_found:
                picture.text(310 + 72 * at, y + 16, found["check"][-1], "middle", "#ffffff", 11)
    picture.text(278, 338, "blue: the test fails; orange: the code of the finding; gray: nothing", fill=GRAY, size=11)
    return picture


def sessions(counts):
    picture = Picture(760, 316, "40 measurements of two programs, one after another and in turns")
    left, colors = 60, (BLUE, ORANGE)
    for at, (name, title) in enumerate((("AABB", "first all of A, then all of B"), ("ABAB", "in turns"))):
        bottom, times = 144 + 142 * at, counts["timing.cpp"][name]
        require(len(times), 40, f"sessions, {name}")
        picture.text(left, bottom - 120, title, size=13)
        for time in (1, 1.25, 1.5):
            picture.line(left, round(bottom - 140 * (time - 0.9), 1), left + 640, round(bottom - 140 * (time - 0.9), 1), PALE)
            picture.text(left - 8, round(bottom - 140 * (time - 0.9) + 4, 1), time, "end", GRAY, 11)
        for i, time in enumerate(times):
            y = round(bottom - 140 * (min(time, 1.62) - 0.9), 1)
            picture.rect(left + 16 * i + 4, y - 4, 8, 8, colors[i // 20 if name == "AABB" else i % 2])
    picture.text(left, 308, "blue: A, orange: B, which takes 1.05 times as long; above 1.62 is drawn there", fill=GRAY, size=11)
    return picture


def zero(counts):
    left, scale, colors = 150, 0.0004, (GRAY, BLUE, ORANGE)
    picture = Picture(760, 230, "Bytes that a rank stores in the four stages of ZeRO")
    picture.text(20, 22, "bytes that one of 8 ranks stores; at the right: bytes that it sends in a step", size=13)
    for at, (stage, run) in enumerate(counts["zero.cpp"].items()):
        y, x = 46 + 38 * at, left
        parts = [run[kind] for kind in ("parameters", "gradients", "optimizer")]
        require(sum(parts), run["all"], f"zero, stage {stage}")
        picture.text(left - 10, y + 17, f"stage {stage}", "end")
        for part, color in zip(parts, colors):
            picture.rect(round(x, 1), y, round(scale * part - 1, 1), 24, color)
            x += scale * part
        picture.text(round(x + 8, 1), y + 17, f"{run['all']:,}", size=11)
        picture.text(730, y + 17, f"{run['sent']:,} sent", "end", GRAY, 11)
    for x, fill, text in ((150, GRAY, "parameters"), (270, BLUE, "gradients"), (380, ORANGE, "optimizer")):
        picture.rect(x, 206, 14, 12, fill)
        picture.text(x + 20, 217, text)
    return picture


def drift(counts):
    run, left, bottom = counts["determinism.cpp"]["drift"], 70, 220
    picture = Picture(760, 262, "The difference of the losses of two trainings against the step, for two learning rates")
    picture.text(left, 22, "difference of the losses; both trainings differ in the order of one sum; 0 is drawn as 10^-9", size=13)
    require(len(run["0.1"]), len(run["0.5"]), "drift")
    for power in range(-8, 1, 2):
        picture.line(left, bottom + 20 * (-9 - power), left + 500, bottom + 20 * (-9 - power), PALE)
        picture.text(left - 8, bottom + 20 * (-9 - power) + 4, f"10^{power}", "end", GRAY, 11)
    for at, (rate, color) in enumerate((("0.1", BLUE), ("0.5", ORANGE))):
        for step, difference in run[rate].items():
            height = 20 * (9 + math.log10(max(difference, 1e-9)))
            picture.rect(left + int(step) / 2, round(bottom - height - 3, 1), 6, 6, color)
        picture.rect(600, 60 + 24 * at, 12, 12, color)
        picture.text(618, 70 + 24 * at, f"rate {rate}")
    for step in range(0, 1001, 200):
        picture.text(left + step / 2 + 3, bottom + 20, step, "middle", GRAY, 11)
    picture.text(left + 500, bottom + 36, "steps", "end", GRAY, 11)
    return picture


def failures(counts):
    left, bottom = 70, 230
    picture = Picture(760, 282, "Lost time against the interval between checkpoints, for three numbers of ranks")
    picture.text(left, 22, "lost time in %; 50 % and more is drawn as 50", size=13)
    for percent in (0, 10, 20, 30, 40, 50):
        picture.line(left, bottom - 3.6 * percent, left + 490, bottom - 3.6 * percent, PALE)
        picture.text(left - 8, round(bottom - 3.6 * percent + 4, 1), percent, "end", GRAY, 11)
    for at, ((ranks, run), color) in enumerate(zip(counts["failures.cpp"].items(), (GRAY, BLUE, ORANGE))):
        # The rule: the square root of 2 C M, with C = 3 minutes.
        require(round(math.sqrt(6 * run["mean"])), run["rule"], f"failures, {ranks} ranks")
        places = [(round(left + 70 * math.log2(int(minutes) / 10), 1), round(bottom - 3.6 * min(lost, 50), 1)) for minutes, lost in run["lost"].items()]
        for begin, end in zip(places, places[1:]):
            picture.line(*begin, *end, color)
        x = round(left + 70 * math.log2(run["rule"] / 10), 1)
        picture.line(x, bottom, x, bottom - 12, color)
        picture.rect(590, 60 + 24 * at, 12, 12, color)
        picture.text(608, 70 + 24 * at, f"{int(ranks):,} ranks")
    for minutes in (10, 20, 40, 80, 160, 320, 640, 1280):
        picture.text(round(left + 70 * math.log2(minutes / 10), 1), bottom + 18, f"{minutes:,}", "middle", GRAY, 11)
    picture.text(left + 490, bottom + 36, "minutes between checkpoints; a mark at the bottom: the best by the rule", "end", GRAY, 11)
    return picture


def convolution(counts):
    left, scale, ways = 130, 120, {"direct": GRAY, "F(2x2)": BLUE, "F(4x4)": ORANGE}
    picture = Picture(760, 330, "Multiply-adds of a convolution relative to the definition, for 1 to 64 channels")
    picture.text(20, 22, "multiply-adds, relative to the definition; 32 x 32 pixels; the transforms are included", size=13)
    for at, (channels, run) in enumerate(counts["convolution.cpp"].items()):
        require(32 * 32 * 9 * int(channels) ** 2, run["direct"]["multiply_adds"], f"convolution, {channels} channels")
        picture.text(left - 10, 70 + 66 * at, f"{channels} channel{'s' if channels != '1' else ''}", "end")
        for row, (way, color) in enumerate(ways.items()):
            part = run[way]["multiply_adds"] / run["direct"]["multiply_adds"]
            picture.rect(left, 42 + 66 * at + 18 * row, round(scale * part, 1), 15, color)
            picture.text(round(left + scale * part + 8, 1), 54 + 66 * at + 18 * row, f"{part:.2f}  {way}", size=11)
    picture.line(left + scale, 36, left + scale, 300, PALE)
    return picture


def moments(counts):
    left, bottom, means = 80, 260, ("10", "100", "1000", "10000", "100000")
    colors = {"of_squares": ORANGE, "two_passes": "#8a5fb5", "shifted": BLUE, "welford": GRAY, "tree": "#3c8f4e"}
    picture = Picture(760, 310, "Relative error of the variance in float against the mean of the numbers, for five ways")
    picture.text(left, 22, "relative error of the variance; 1 and more is drawn as 1", size=13)
    require(list(counts["moments.cpp"])[1:], list(means), "moments")
    for power in range(-8, 1, 2):
        picture.line(left, bottom - 28 * (power + 8), left + 480, bottom - 28 * (power + 8), PALE)
        picture.text(left - 8, bottom - 28 * (power + 8) + 4, f"10^{power}" if power else "1", "end", GRAY, 11)
    for at, (way, color) in enumerate(colors.items()):
        places = [(left + 120 * i, round(bottom - 28 * (8 + math.log10(min(counts["moments.cpp"][mean][way], 1))), 1)) for i, mean in enumerate(means)]
        for begin, end in zip(places, places[1:]):
            picture.line(*begin, *end, color)
        for x, y in places:
            picture.rect(x - 3, y - 3, 6, 6, color)
        picture.rect(600, 60 + 22 * at, 12, 12, color)
        picture.text(618, 70 + 22 * at, way.replace("_", " "))
    for i, mean in enumerate(means):
        picture.text(left + 120 * i, bottom + 18, f"{int(mean):,}", "middle", GRAY, 11)
    picture.text(left + 480, bottom + 36, "mean", "end", GRAY, 11)
    return picture


def norms(counts):
    left, bottom, scale = 80, 240, 4  # pixels per point above 40 %
    picture = Picture(760, 300, "Accuracy of ten seeds for 1, 4, 8 and 16 ranks, with the right learning rate and a small one")
    picture.text(left, 22, "accuracy in %; a dot is a seed, a line the mean", size=13)
    for percent in range(40, 91, 10):
        picture.line(left, bottom - scale * (percent - 40), left + 560, bottom - scale * (percent - 40), PALE)
        picture.text(left - 8, bottom - scale * (percent - 40) + 4, percent, "end", GRAY, 11)
    for group, (prefix, color) in enumerate((("ranks_", BLUE), ("small_rate_", ORANGE))):
        for at, ranks in enumerate((1, 4, 8, 16)):
            run, x = counts["norms.cpp"][f"{prefix}{ranks}"], left + 20 + 280 * group + 66 * at
            require(round(sum(run["seeds"]) / 10, 1), run["mean"], f"norms, {ranks} ranks")
            for seed, accuracy in enumerate(run["seeds"]):
                picture.rect(x + 4 * seed, round(bottom - scale * (accuracy - 40) - 2, 1), 4, 4, color)
            y = round(bottom - scale * (run["mean"] - 40), 1)
            picture.line(x - 2, y, x + 42, y)
            picture.text(x + 20, bottom + 18, f"{ranks} x {64 // ranks}", "middle", GRAY, 11)
        picture.text(left + 140 + 280 * group, bottom + 38, ("the right rate", "1,024 times too small")[group], "middle")
    picture.text(left + 570, bottom + 18, "ranks x samples", fill=GRAY, size=11)
    return picture


FIGURES = {"norms": norms, "moments": moments, "convolution": convolution, "failures": failures, "drift": drift, "zero": zero, "gradients": gradients, "pipeline": pipeline, "layout": layout, "step": step, "rates": rates, "overlap": overlap, "gemm": gemm, "fragments": fragments, "fusion": fusion, "launches": launches, "mutants": mutants, "sessions": sessions, "allreduce": all_reduce, "saved": saved, "pending": pending, "path-of-data": path_of_data, "grid": grid, "sectors": sectors, "banks": banks, "sum": ladder}


def drawn():
    """Returns the text of each figure, by the name of its file."""
    counts = json.loads(COUNTS.read_text(encoding="utf-8"))
    return {f"{name}.svg": draw(counts).svg() for name, draw in FIGURES.items()}


if __name__ == "__main__":
    for name, svg in drawn().items():
        (HERE / name).write_text(svg, encoding="utf-8")
