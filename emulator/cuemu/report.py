"""What a program has reported to the file of CUEMU_REPORT: findings, and the counts of its launches, as tables."""
import json
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent


def read(path):
    """Returns the findings and the launches of a report."""
    lines = [json.loads(line) for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines()]
    return ([line["finding"] for line in lines if "finding" in line], [line["launch"] for line in lines if "launch" in line])


def to_string(finding):
    """Returns "sum.cu:12: CE101: …"."""
    return ": ".join(part for part in (finding["place"], finding["code"], finding["message"]) if part)


def grouped(launches):
    """Returns the launches of one kernel with equal sizes as one, with the sums of their counts."""
    groups = {}
    for launch in launches:
        key = (launch["kernel"], *launch["grid"], *launch["block"], launch["shared_bytes"])
        if key not in groups:
            groups[key] = {**launch, "launches": 0, "sites": {}}
        group = groups[key]
        group["launches"] += 1
        group["barriers"] += launch["barriers"] if group["launches"] > 1 else 0
        for site in launch["sites"]:
            line = group["sites"].setdefault(site["place"], {})
            for name, counts in site.items():
                if isinstance(counts, dict):
                    into = line.setdefault(name, dict.fromkeys(counts, 0))
                    for unit, count in counts.items():
                        into[unit] += count
            line["atomics"] = line.get("atomics", 0) + site["atomics"]
    return list(groups.values())


def size(value):
    return "x".join(map(str, value[:max(i + 1 for i in range(3) if i == 0 or value[i] > 1)]))


NAMES = {"global_loads": "global load", "global_stores": "global store", "shared_loads": "shared load",
         "shared_stores": "shared store", "tensor_loads": "tensor load"}
WIDTHS = [24, 13, 10, 10, 11, 10, 7]


def row(cells):
    return "  " + " ".join(f"{cell:<{width}}" if i < 2 else f"{cell:>{width}}"
                           for i, (cell, width) in enumerate(zip(cells, WIDTHS))).rstrip()


def by_line(place):
    name, _, line = place.rpartition(":")
    return name, int(line) if line.isdigit() else 0


def table(group):
    """Returns the lines of a kernel's table. A request is one instruction of a warp."""
    times = "" if group["launches"] == 1 else f", {group['launches']} launches"
    yield (f"{group['kernel']}: {size(group['grid'])} blocks of {size(group['block'])} threads{times}, "
           f"{group['shared_bytes']} B of shared memory, {group['barriers']:,} barriers")
    yield row(["line", "access", "requests", "sectors", "wavefronts", "conflicts", "lanes"])
    total = {}
    for place in sorted(group["sites"], key=by_line):
        site = group["sites"][place]
        for kind in NAMES:
            counts = site.get(kind, {})
            if counts.get("requests"):
                yield access_row(place, kind, counts)
                into = total.setdefault(kind, dict.fromkeys(counts, 0))
                for unit, count in counts.items():
                    into[unit] += count
        if site["atomics"]:
            yield row([place, "atomic", f"{site['atomics']:,}"]) + " of threads"
    for kind, counts in total.items():
        yield access_row("all lines", kind, counts)


def access_row(place, kind, counts):
    requests = counts["requests"]
    cells = [place, NAMES[kind], f"{requests:,}"]
    if "sectors" in counts:
        cells += [f"{counts['sectors']:,}", "", ""]
    else:
        cells += ["", f"{counts['wavefronts']:,}", f"{counts['wavefronts'] / counts['minimum']:.2f}"]
    return row(cells + [f"{counts['lanes'] / requests:.1f}"])


def remarks(group):
    """Returns what the counts say, with the codes of their pages."""
    for place in sorted(group["sites"], key=by_line):
        site = group["sites"][place]
        for kind in ("global_loads", "global_stores"):
            counts = site.get(kind, {})
            if counts.get("requests") and 32 * counts["sectors"] >= 2 * max(counts["bytes"], 32 * counts["requests"]):
                yield (f"{place}: CE201: a {NAMES[kind]} of a warp asks for {counts['bytes'] / counts['requests']:.0f} bytes and "
                       f"moves {counts['sectors'] / counts['requests']:.1f} sectors of 32 bytes; neighboring lanes are apart")
        for kind in ("shared_loads", "shared_stores"):
            counts = site.get(kind, {})
            if counts.get("requests") and counts["wavefronts"] >= 2 * counts["minimum"]:
                yield (f"{place}: CE202: a {NAMES[kind]} of a warp takes {counts['wavefronts'] / counts['minimum']:.1f} times as "
                       "many wavefronts as its words need; the words are in the same banks")
        for kind, counts in site.items():
            if kind in NAMES and counts["requests"] >= 32 and counts["lanes"] <= 8 * counts["requests"]:
                yield (f"{place}: CE203: {counts['lanes'] / counts['requests']:.1f} of 32 lanes work on average in a "
                       f"{NAMES[kind]}")
