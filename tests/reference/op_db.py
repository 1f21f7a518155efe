#!/usr/bin/env python3
"""Computes ops and their gradients at PyTorch's own sample inputs: reference_inputs of op_db, which contain the small,
large, extremal and broadcast values of elementwise ops.

    python3 tests/reference/op_db.py FILE    (with torch, numpy, safetensors and expecttest)

Writes a safetensors file for OpDb.AgreesWithPyTorch of engine_test and engine_cuda_test, which read the file that
CONVOY_OP_SAMPLES names. It has the tensors of samples.py for each case <op>/<family>.<name in op_db>.<number>, in
Convoy's layout, and also
  dy     the gradient of y; ones if there is none
  terms  [1]: the number of terms of the longest sum, if there is one
and x without a dx for indices, conditions and running statistics. missing/<family> [1] is the number of samples with an
argument that Convoy does not have; the reasons are printed.
"""

import collections
import dataclasses
import math
import pathlib
import random
import sys

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_map

import generate
import samples

MAX_ELEMENTS = 1 << 14  # of an operand of an elementwise op; larger ones are cut to their first rows
MAX_AXES = 6            # of Convoy's tensors


class Missing(Exception):
    """Convoy has no such argument."""


@dataclasses.dataclass
class Case:
    """A sample as a call of Convoy's `op`."""
    op: str
    inputs: list          # tensors of the sample, with gradients
    options: object = ()  # numbers, or a function of PyTorch's result
    constants: tuple = ()  # tensors of the sample without gradients, which follow the inputs
    terms: int = 0
    is_channels_last: bool = False
    result: object = lambda out: out  # of PyTorch's result
    has_sum: bool = False  # the op gives the gradient of the sum alone
    exact: object = None  # a function of the inputs, where PyTorch's float64 cancels


def need(condition, argument: str) -> None:
    if not condition:
        raise Missing(argument)


def is_number(value) -> bool:
    return isinstance(value, (bool, int, float))


def one_of(value, argument: str) -> int:
    """Returns the number of an argument that is one, or equal ones for both axes."""
    values = {value} if is_number(value) else set(value)
    need(len(values) == 1, f"{argument} that differs by axis")
    return values.pop()


def pair(value) -> list:
    """Returns the numbers of an argument for the rows and for the columns."""
    values = [value] if value is None or is_number(value) else list(value)
    return values * 2 if len(values) == 1 else values


def present(*tensors) -> list:
    return [tensor for tensor in tensors if tensor is not None]


def first(out):
    return out[0]


def shape_of(out):
    return out.shape


def unary(op: str, *options):
    return lambda x: Case(op, [x], options)


def gelu(x, approximate="none"):
    return Case("gelu", [x], exact=samples.exact_gelu) if approximate == "none" else Case(
        "gelu_tanh", [x], exact=samples.exact_gelu_tanh)


def without_nan(op: str, x, *options):
    need(not x.isnan().any(), "NaN, whose gradient in PyTorch depends on its position")
    return Case(op, [x], options)


def clamp(x, min=None, max=None):
    need(not isinstance(min, torch.Tensor) and not isinstance(max, torch.Tensor), "tensors as the bounds of clamp")
    return Case("clamp", [x], [-math.inf if min is None else min, math.inf if max is None else max])


def binary(op: str, with_number: str = "", is_reflected: bool = False):
    def case(x, other, alpha=1, rounding_mode=None):
        need(alpha == 1, "a factor alpha")
        need(isinstance(x, torch.Tensor), "a number as the first operand")
        if is_number(other):
            return Case(with_number, [x], [other])
        need(isinstance(other, torch.Tensor), "complex numbers")
        need(x.dtype == other.dtype, "operands of two types")
        return Case(op, [other, x] if is_reflected else [x, other])
    return case


def pow(x, exponent):
    need(is_number(exponent), "a tensor as the exponent")
    return Case("pow", [x], [exponent])


def where(x, condition, other):
    need(isinstance(x, torch.Tensor) and isinstance(other, torch.Tensor), "numbers in where")
    need(x.dtype == other.dtype, "operands of two types")
    return Case("where", [x, other], constants=(condition,))


def axes_of(x, dim) -> list:
    return [dim] if isinstance(dim, int) else list(dim or range(x.ndim))


def reduction(op: str):
    return lambda x, dim=None, keepdim=False: Case(op, [x], [keepdim, *axes_of(x, dim)], terms=x.numel())


def variance(x, dim=None, unbiased=None, keepdim=False, correction=1):
    if isinstance(dim, bool):  # x.var(unbiased)
        dim, unbiased = None, dim
    correction = unbiased if unbiased is not None else 1 if correction is None else correction
    need(correction in (0, 1), "corrections other than 0 and 1")
    return Case("variance_over", [x], [keepdim, correction, *axes_of(x, dim)], terms=x.numel())


def extremum(op: str, result=lambda out: out):
    def case(x, dim=None, keepdim=False):
        need(isinstance(dim, int), "extrema over several axes")
        return Case(op, [x], [keepdim, dim], result=result)
    return case


def softmax(op: str):
    return lambda x, dim: Case(op, [x], [dim], terms=x.numel())


def matmul(a, b):
    return Case("matmul", [a, b], terms=max([*a.shape, *b.shape]))


def linear(x, weight, bias=None):
    return Case("linear", present(x, weight, bias), terms=max(x.numel(), *weight.shape))


def to_shape(op: str):
    return lambda x, *shape: Case(op, [x], shape_of, terms=x.numel() if op == "sum_to" else 0)


def permute(x, *axes):
    return Case("permute", [x], axes[0] if len(axes) == 1 and not is_number(axes[0]) else axes)


def movedim(x, source, destination):
    numbered = torch.empty(tuple(range(x.ndim)), device="meta")  # whose sizes are the numbers of its axes
    return Case("permute", [x], numbered.movedim(source, destination).shape)


def transpose(x, a=0, b=1):
    return Case("transpose", [x], [a, b])


def t(x):
    need(x.ndim == 2, "t of other than a matrix")
    return transpose(x)


def squeeze(x, dim=None):
    need(dim is not None, "squeeze of all axes")
    return Case("squeeze", [x], [dim])


def narrow(x, dim, start, length):
    begin = int(start) + (x.shape[dim] if start < 0 else 0)
    return Case("slice", [x], [dim, begin, begin + length, 1])


def slice_(x, dim=0, start=None, end=None, step=1):
    size = x.shape[dim]
    return Case("slice", [x], [dim, *slice(start, end).indices(size)[:2], step])


def parts(x, count: int, dim: int):
    return Case("chunk", [x], [count, dim], result=lambda out: torch.cat([part.reshape(-1) for part in out]))


def chunk(x, chunks, dim=0):
    return parts(x, chunks, dim)


def split(x, size, dim=0):
    need(x.shape[dim] % size == 0, "parts of two sizes")
    return parts(x, x.shape[dim] // size, dim)


def join(op: str):
    return lambda inputs, dim=0: Case(op, list(inputs), [dim])


def pad(x, padding, mode="constant", value=0.0):
    if not isinstance(mode, str):  # constant_pad_nd(x, padding, value)
        mode, value = "constant", mode
    pairs = [padding[i:i + 2] for i in range(0, len(padding), 2)] + [(0, 0)] * (x.ndim - len(padding) // 2)
    return Case("pad", [x], [value or 0.0, *(count for pair in reversed(pairs) for count in pair)])


def flatten(x, start_dim=0, end_dim=-1):
    is_rest = x.ndim >= 2 and start_dim == 1 and end_dim in (-1, x.ndim - 1)
    return Case("flatten" if is_rest else "reshape", [x], shape_of, is_channels_last=is_rest and x.ndim == 4)


def index_select(x, dim, index):
    return Case("index_select", [x], [dim], constants=(index,), terms=index.numel())


def embedding(weight, indices, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False):
    need(padding_idx is None, "padding_idx")
    need(max_norm is None, "max_norm")
    need(not scale_grad_by_freq and not sparse, "sparse or scaled gradients")
    return Case("embedding", [weight], constants=(indices,), terms=indices.numel())


def image(op: str, x, inputs, options, terms):
    need(x.ndim == 4, "an image without a batch axis")
    return Case(op, present(x, *inputs), options, terms=terms, is_channels_last=True)


def conv2d(x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    is_same = padding == "same"
    padding = 0 if isinstance(padding, str) else padding
    options = [*pair(stride), *pair(padding), *pair(dilation), groups, is_same]
    return image("conv2d_with", x, [weight, bias], options, max(x.numel(), weight.numel()))


def conv_transpose2d(x, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    need(one_of(dilation, "dilation") == 1, "dilation")
    options = [one_of(stride, "stride"), one_of(padding, "padding"), one_of(output_padding, "output_padding"), groups]
    return image("conv2d_transpose", x, [weight, bias], options, max(x.numel(), weight.numel()))


def max_pool2d(x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    need(one_of(dilation, "dilation") == 1, "dilation")
    need(not return_indices, "indices of the maxima")
    options = [*pair(kernel_size), *pair(stride or kernel_size), *pair(padding), ceil_mode, True]
    return image("max_pool2d_with", x, [], options, math.prod(options[:2]))


def avg_pool2d(x, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
    need(divisor_override is None, "divisor_override")
    options = [*pair(kernel_size), *pair(stride or kernel_size), *pair(padding), ceil_mode, count_include_pad]
    return image("avg_pool2d_with", x, [], options, math.prod(options[:2]))


def adaptive_pool2d(op: str):
    def case(x, output_size, return_indices=False):
        need(not return_indices, "indices of the maxima")
        sizes = pair(output_size)
        need(x.ndim == 4, "an image without a batch axis")
        sizes = [size if size is not None else x.shape[axis] for size, axis in zip(sizes, (2, 3))]
        return image(op, x, [], sizes, x.shape[2] * x.shape[3])
    return case


def batch_norm(x, mean, variance, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    need(x.ndim >= 2, "a batch norm of one axis")
    need(mean is not None and weight is not None and bias is not None, "a batch norm without parameters or statistics")
    return Case("batch_norm_with", [x, weight, bias], [training, eps], (mean, variance), x.numel() // x.shape[1], True)


def layer_norm(x, shape, weight=None, bias=None, eps=1e-5):
    def exact(x, weight=1, bias=0):
        axes = tuple(range(-len(shape), 0))
        centered = x - x.mean(axes, keepdim=True)
        return centered / (centered.square().mean(axes, keepdim=True) + eps).sqrt() * weight + bias
    return Case("layer_norm_with", present(x, weight, bias), [eps, *shape], terms=x.numel(), exact=exact)


def group_norm(x, groups, weight=None, bias=None, eps=1e-5):
    return Case("group_norm_with", present(x, weight, bias), [eps, groups], terms=x.numel(), is_channels_last=True)


REDUCTIONS = ["mean", "sum", "none"]


def loss(op: str, exact=None):
    def case(x, target, reduction="mean", weight=None, pos_weight=None, log_target=False, **width):  # beta or delta
        reductions = {"mean": lambda y: y.mean().reshape(1), "sum": lambda y: y.sum().reshape(1), "none": lambda y: y}
        need(reduction in reductions, f"reduction={reduction}")
        need(weight is None and pos_weight is None, "weights of classes or elements")
        need(not log_target, "log_target")
        return Case(op, [x, target], [list(reductions).index(reduction), *(width.values() or [1])], terms=0 if reduction == "none" else x.numel(),
                    result=lambda out: out if reduction == "none" else out.reshape(1),
                    exact=exact and (lambda *leaves: reductions[reduction](exact(*leaves))))
    return case


def nll_loss(x, target, weight=None, ignore_index=-100, reduction="mean"):
    return dataclasses.replace(cross_entropy(x, target, weight, ignore_index, reduction), op="nll_loss")


def cross_entropy(x, target, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0):
    need(x.ndim >= 2, "logits of one row without a batch axis")
    has_labels = not target.is_floating_point()
    constants = present(None if has_labels else target, weight)
    options = [REDUCTIONS.index(reduction), label_smoothing, ignore_index, weight is not None]
    return Case("cross_entropy_with", [x], [*options, *(target.flatten().tolist() if has_labels else [])], constants,
                terms=x.numel(), is_channels_last=True, result=torch.flatten)


def attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    need(dropout_p == 0, "dropout in attention, whose draws are others")
    kind = 0 if attn_mask is None else 1 if attn_mask.dtype == torch.bool else 2
    need(not enable_gqa or q.shape[:-2] == k.shape[:-2], "grouped queries")
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    inputs = [q, k, v, attn_mask] if kind == 2 else [q, k, v]
    return Case("attention_with", inputs, [is_causal, scale, kind], (attn_mask,) if kind == 1 else (), terms=max(*q.shape[-2:], *k.shape[-2:]))


UNARY = {"nn.functional.relu": unary("relu"), "nn.functional.gelu": gelu, "nn.functional.silu": unary("silu"),
         "nn.functional.hardswish": unary("hardswish"), "clamp": clamp,
         "nn.functional.hardsigmoid": lambda x: Case("hardsigmoid", [x], exact=samples.exact_hardsigmoid),
         "nn.functional.hardtanh": lambda x, min_val=-1, max_val=1: without_nan("hardtanh", x, min_val, max_val),
         "nn.functional.relu6": lambda x: without_nan("hardtanh", x, 0, 6),
         "nn.functional.leaky_relu": lambda x, negative_slope=0.01: Case("leaky_relu", [x], [negative_slope]),
         "nn.functional.elu": lambda x, alpha=1: without_nan("elu", x, alpha),
         "nn.functional.softplus": lambda x, beta=1, threshold=20: Case("softplus", [x], [beta, threshold]), "tanh": unary("tanh"), "sigmoid": unary("sigmoid"),
         "exp": unary("exp"), "log": unary("log"), "sqrt": unary("sqrt"), "abs": unary("abs"), "neg": unary("neg"),
         "square": unary("pow", 2), "reciprocal": unary("pow", -1)}
BINARY = {"add": binary("add", "add_scalar"), "__radd__": binary("add", "add_scalar"),
          "sub": binary("sub", "sub_scalar"), "rsub": binary("sub", "rsub_scalar", True),
          "__rsub__": binary("sub", "rsub_scalar", True),
          "mul": binary("mul", "mul_scalar"), "__rmul__": binary("mul", "mul_scalar"),
          "div.no_rounding_mode": binary("div", "div_scalar"), "__rdiv__": binary("div", "rdiv_scalar", True),
          "maximum": binary("maximum"), "max.binary": binary("maximum"),
          "minimum": binary("minimum"), "min.binary": binary("minimum"), "where": where, "pow": pow}
FAMILIES = {
    "unary": UNARY,
    "binary": BINARY,
    "reductions": {"sum": reduction("sum_over"), "mean": reduction("mean_over"), "var": variance, "var.unbiased": variance,
                   "amax": extremum("max_over"), "amin": extremum("min_over"),
                   "max.reduction_with_dim": extremum("max_over", first),
                   "min.reduction_with_dim": extremum("min_over", first), "argmax": extremum("argmax"),
                   "sum_to_size": to_shape("sum_to")},
    "softmax": {"softmax": softmax("softmax"), "log_softmax": softmax("log_softmax")},
    "matmul": {"matmul": matmul, "__rmatmul__": lambda a, b: matmul(b, a), "mm": matmul, "bmm": matmul,
               "nn.functional.linear": linear},
    "movement": {"reshape": to_shape("reshape"), "view": to_shape("reshape"), "permute": permute, "movedim": movedim,
                 "transpose": transpose, "t": t, "mT": lambda x: transpose(x, -2, -1), "squeeze": squeeze,
                 "unsqueeze": lambda x, dim: Case("unsqueeze", [x], [dim]), "broadcast_to": to_shape("broadcast_to"),
                 "expand": to_shape("broadcast_to"), "slice": slice_, "narrow": narrow, "chunk": chunk, "split": split,
                 "cat": join("concat"), "stack": join("stack"), "nn.functional.pad.constant": pad, "constant_pad_nd": pad,
                 "flatten": flatten},
    "indexing": {"index_select": index_select, "nn.functional.embedding": embedding},
    "convolution": {"nn.functional.conv2d": conv2d, "nn.functional.conv_transpose2d": conv_transpose2d},
    "pooling": {"nn.functional.max_pool2d": max_pool2d, "nn.functional.avg_pool2d": avg_pool2d,
                "nn.functional.adaptive_avg_pool2d": adaptive_pool2d("adaptive_avg_pool2d"),
                "nn.functional.adaptive_max_pool2d": adaptive_pool2d("adaptive_max_pool2d")},
    "normalization": {"nn.functional.batch_norm": batch_norm, "nn.functional.layer_norm": layer_norm,
                      "nn.functional.group_norm": group_norm},
    "losses": {"nn.functional.cross_entropy": cross_entropy, "nn.functional.mse_loss": loss("mse_loss"),
               "nn.functional.nll_loss": nll_loss, "nn.functional.l1_loss": loss("l1_loss"),
               "nn.functional.huber_loss": loss("huber_loss"), "nn.functional.smooth_l1_loss": loss("smooth_l1_loss"),
               "nn.functional.binary_cross_entropy_with_logits": loss("binary_cross_entropy_with_logits", samples.exact_bce),
               "nn.functional.kl_div": loss("kl_divergence")},
    "attention": {"nn.functional.scaled_dot_product_attention": attention},
}


def cut(value):
    if isinstance(value, torch.Tensor) and value.numel() > MAX_ELEMENTS:
        return value[:MAX_ELEMENTS // value[0].numel()]
    return value


def add(stored: samples.Samples, name: str, op, arguments, case: Case) -> None:
    """Adds one sample, in Convoy's layout. Raises Missing if it has tensors of more axes than Convoy's."""
    tensors = [*case.inputs, *case.constants]
    positions = {id(tensor): i for i, tensor in enumerate(tensors)}

    def call(*leaves):
        def given(value):
            if id(value) not in positions:
                return value
            i = positions[id(value)]
            if i < len(case.inputs):
                return leaves[i]
            return leaves[i].detach().clone().to(leaves[i].dtype if value.is_floating_point() else value.dtype)
        x, args, kwargs = tree_map(given, arguments)
        return case.result(op(x, *args, **kwargs))

    y = call(*tensors)
    need(all(tensor.ndim <= MAX_AXES for tensor in [*tensors, y]), f"more than {MAX_AXES} axes")
    options = case.options(y) if callable(case.options) else case.options
    one = samples.Samples()
    one.add(name, call, [tensor.detach() for tensor in tensors], options, ones=case.has_sum,
            exact=case.exact and (lambda *leaves: case.exact(*leaves[:len(case.inputs)])))
    if y.is_floating_point() and not case.has_sum:
        one.stored[f"{name}/dy"] = samples.drawn(f"{name}/dy", *y.shape)
    for key in [f"{name}/dx{i}" for i in range(len(case.inputs) if y.is_floating_point() else 0, len(tensors))]:
        for suffix in ("", "_f32", "_f64"):
            one.stored.pop(key + suffix, None)
    if case.is_channels_last:
        one.stored = {key: x.movedim(1, -1) if x.ndim > 2 else x for key, x in one.stored.items()}
    if case.terms > 0:
        one.stored[f"{name}/terms"] = torch.tensor([float(case.terms)])
    stored.stored |= one.stored


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: op_db.py FILE")
    torch.set_num_threads(1)  # a fixed order of sums
    infos = {".".join(filter(None, (info.name, info.variant_test_name))): info for info in op_db}
    stored, lacking = samples.Samples(), collections.defaultdict(collections.Counter)
    for family, ops in FAMILIES.items():
        for name, case_of in ops.items():
            torch.manual_seed(0)
            random.seed(0)
            for i, sample in enumerate(infos[name].reference_inputs("cpu", torch.float32)):
                arguments = (sample.input, sample.args, sample.kwargs)
                if family in ("unary", "binary"):
                    arguments = tree_map(cut, arguments)
                try:
                    case = case_of(arguments[0], *arguments[1], **arguments[2])
                    add(stored, f"{case.op}/{family}.{name}.{i}", infos[name], arguments, case)
                except Missing as missing:
                    lacking[family][f"{name}: {missing}"] += 1
        stored.stored[f"missing/{family}"] = torch.tensor([float(lacking[family].total())])
        for reason, count in sorted(lacking[family].items()):
            print(f"missing in {family}: {count} of {reason}")
    generate.save(pathlib.Path(sys.argv[1]).absolute(), stored.stored)


if __name__ == "__main__":
    main()
