"""Inline PTX: an asm statement of one instruction becomes a call of the emulator (include/ptx.h, program/inline_ptx.h)."""
import re

from source import split

# The operands of each instruction, and the function that gets them in this order. r, l, f: an integer, one of 64 bits or a float
# that is read; R, L, F: one that is written.
MMA, LDMATRIX = "{F,F,F,F},{r,r,r,r},{r,r},{f,f,f,f}", "{R,R,R,R},[r]"
INSTRUCTIONS = {
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32": (MMA, "cuemu::mma_bf16"),
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32": (MMA, "cuemu::mma_f16"),
    "ldmatrix.sync.aligned.m8n8.x4.shared.b16": (LDMATRIX, "convoy::emulator::load_matrices"),
    "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16": (LDMATRIX, "convoy::emulator::load_transposed_matrices"),
    "mapa.u64": ("L,l,r", "cuemu::map_generic"),
    "mapa.shared::cluster.u32": ("R,r,r", "cuemu::map_shared"),
    "ld.shared::cluster.u32": ("R,[r]", "cuemu::load_shared"),
    "ld.shared::cluster.f32": ("F,[r]", "cuemu::load_shared"),
    "st.shared::cluster.u32": ("[r],r", "cuemu::store_shared"),
    "st.shared::cluster.f32": ("[r],f", "cuemu::store_shared"),
    **{f"barrier.cluster.arrive{order}{aligned}": ("", "__cluster_barrier_arrive")
       for order in ("", ".release") for aligned in ("", ".aligned")},
    **{f"barrier.cluster.wait{order}{aligned}": ("", "__cluster_barrier_wait")
       for order in ("", ".acquire") for aligned in ("", ".aligned")},
}
CONSTRAINTS = {"l": ("l", "+l"), "L": ("=l", "+l"), "r": ("r", "+r"), "f": ("f", "+f"), "R": ("=r", "+r"), "F": ("=f", "+f")}
HEADER = '#include "emulator/program/inline_ptx.h"\n'


def inline_ptx(source):
    """asm("ldmatrix… {%0, %1, %2, %3}, [%4];" : "=r"(a) … : "r"(b));  ->  load_matrices(a, …, b);"""
    for m in re.finditer(r"\b(?:asm|__asm__)\b\s*(?:(?:volatile|__volatile__)\s*)?\(", source.mask):
        end = source.closing(m.end() - 1)
        sections = [source.code[begin:to] for begin, to in sections_of(source.mask, m.end(), end)]
        instruction = "".join(re.findall(r'"((?:\\.|[^"\\])*)"', sections[0])).replace("\\n", " ").replace("\\t", " ")
        name, _, text = instruction.strip().removesuffix(";").partition(" ")
        if name not in INSTRUCTIONS or ";" in text:
            source.refuse(m.start(), f"found inline PTX '{instruction.strip()}', expected one instruction of: {', '.join(INSTRUCTIONS)}")
        shape, function = INSTRUCTIONS[name]
        operands = [re.fullmatch(r'"([^"]*)"\s*\((.*)\)', operand, re.S) for section in sections[1:3] for operand in split(section) if operand]
        letters, indices = re.findall(r"[rflRFL]", shape), [int(index) for index in re.findall(r"%(\d+)", text)]
        is_shape = re.sub(r"%\d+|\s", lambda part: "%" if part[0][0] == "%" else "", text) == re.sub(r"[rflRFL]", "%", shape)
        if not is_shape or not all(index < len(operands) and operands[index] for index in indices):
            source.refuse(m.start(), f"found the operands '{text.strip()}' of {name}, expected {shape} with %0, %1, … for the letters")
        for letter, index in zip(letters, indices):
            if operands[index][1] not in CONSTRAINTS[letter]:
                source.refuse(m.start(), f'found "{operands[index][1]}" for %{index} of {name}, expected "{CONSTRAINTS[letter][0]}"')
        yield m.start(), end + 1, f"{function}({', '.join(operands[index][2] for index in indices)})"


def sections_of(mask, begin, end):
    """Splits at the colons outside of brackets. Yields where each part begins and ends."""
    depth = 0
    for at in range(begin, end):
        depth += (mask[at] in "([{") - (mask[at] in ")]}")
        if mask[at] == ":" and depth == 0:
            yield begin, at
            begin = at + 1
    yield begin, end
