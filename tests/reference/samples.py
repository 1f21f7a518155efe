"""Computes ops and their gradients at the inputs at which libraries differ: NaN, infinities, zeros of both signs, the
smallest and the largest numbers, a large common offset, and axes of size 0 and 1. Shapes are small ones of the kinds in
PyTorch's own sample inputs (torch/testing/_internal).

A case has the tensors <op>/<case>/x0, x1, … (inputs, which float32 holds exactly, except those of *_f64), options (the
op's arguments, as numbers), y, and dx0, dx1, … (the gradients for the formula's dy), all in float64. If PyTorch's own
results in float32 (of the same inputs) or float64 (with the offset) are others, they follow as y_f32, y_f64 and so on.
"""

import itertools
import math

import torch
import torch.nn.functional as F

import formula

INF, NAN = math.inf, math.nan
MAX, NORMAL, SMALLEST = 3.4028234663852886e38, 1.1754943508222875e-38, 1.401298464324817e-45  # of float32
SPECIAL = [0, -0.0, 1, -1, 0.5, -0.5, 3, -3, 10, -10, 50, -50, 1e-30, -1e-30, NORMAL, -NORMAL, SMALLEST, -SMALLEST,
           1e30, -1e30, MAX, -MAX, INF, -INF, NAN]
SPECIAL_F64 = [1e-200, -1e-200, 2.2250738585072014e-308, 5e-324, -5e-324, 1e200, -1e200, 1.7976931348623157e308]
OPERANDS = [0, 1, -2, 1e-30, 1e-25, 1e20, -1e30, MAX, SMALLEST, INF, -INF, NAN]
ROWS = [[1, 2, 4], [INF, 1, 2], [-INF, 1, 2], [NAN, 1, 2], [INF, INF, 1], [-INF, -INF, -INF], [INF, -INF, 0],
        [1, NAN, INF], [NAN, 5, NAN], [1e30, 1, -1e30], [0, -0.0, 0], [-MAX, MAX, 0], [SMALLEST, 0, -SMALLEST]]
OFFSETS = {"offset_1e3": 1e3, "offset_1e5": 1e5, "offset_1e6": 1e6, "offset_1e7": 1e7}


def drawn(name: str, *shape, scale: float = 1.0, offset: float = 0.0) -> torch.Tensor:
    return torch.from_numpy(formula.values(name, shape, scale, offset)).double()


def differs(found: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> bool:
    """Returns whether any element differs by more than 16 units in the last place."""
    expected = expected.to(dtype).double()
    limit = 16 * torch.finfo(dtype).eps * expected.abs().clamp(min=torch.finfo(dtype).tiny)
    same = (found.double() - expected).abs() <= limit
    return not bool((same | (found.double() == expected) | (found.isnan() & expected.isnan())).all())


class Samples:
    def __init__(self) -> None:
        self.stored = {}

    def add(self, name: str, function, inputs, options=(), offset: float = 0.0, exact=None, ones: bool = False) -> None:
        """Stores the case `name` of function(*inputs). With an offset, the first input is stored with it, and the
        results without it: they are the same. `exact` computes the results where PyTorch's float64 cancels."""
        is_f64 = name.endswith("_f64")
        inputs = [torch.as_tensor(x, dtype=torch.float64) for x in inputs]
        inputs[0] = inputs[0] + offset
        if not is_f64:
            inputs = [x.float().double() for x in inputs]

        def results(of, given, dtype) -> dict:
            leaves = [x.to(dtype).requires_grad_() for x in given]
            y = of(*leaves)
            dy = torch.ones_like(y) if ones else drawn(f"{name}/dy", *y.shape).to(dtype)
            gradients = torch.autograd.grad(y, leaves, dy, allow_unused=True) if y.requires_grad else [None] * len(leaves)
            zeros = [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, gradients)]
            return {"y": y.detach()} | {f"dx{i}": g for i, g in enumerate(zeros)}

        reference = results(function, [inputs[0] - offset, *inputs[1:]], torch.float64)
        if exact is not None:  # NaN and infinities are PyTorch's
            better = results(exact, inputs, torch.float64)
            reference = {key: torch.where(x.isfinite(), better[key], x) for key, x in reference.items()}
        out = {f"x{i}": x for i, x in enumerate(inputs)} | reference
        if len(options) > 0:
            out["options"] = torch.tensor([float(option) for option in options], dtype=torch.float64)
        for suffix, dtype in [("f64", torch.float64)] + ([] if is_f64 else [("f32", torch.float32)]):
            for key, found in results(function, inputs, dtype).items():
                if differs(found, reference[key], dtype):
                    out[f"{key}_{suffix}"] = found.double()
        self.stored |= {f"{name}/{key}": tensor for key, tensor in out.items()}


def exact_gelu(x: torch.Tensor) -> torch.Tensor:
    return x * 0.5 * torch.erfc(-x / math.sqrt(2))  # PyTorch's 1 + erf(x) cancels


def exact_gelu_tanh(x: torch.Tensor) -> torch.Tensor:  # PyTorch's 1 + tanh cancels
    return x * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3))


def exact_hardsigmoid(x: torch.Tensor) -> torch.Tensor:  # PyTorch's gradient has 1/6 in float32
    return (x + 3).clamp(0, 6) / 6


def exact_bce(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:  # PyTorch's difference cancels where the loss is small
    return torch.where(x > 0, x * (1 - t), -x * t) + torch.log1p(torch.exp(-x.abs()))


def unary(samples: Samples) -> None:
    functions = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu, "hardswish": F.hardswish, "tanh": torch.tanh,
                 "sigmoid": torch.sigmoid, "exp": torch.exp, "log": torch.log, "sqrt": torch.sqrt, "abs": torch.abs}
    exact = {"gelu": exact_gelu, "gelu_tanh": exact_gelu_tanh, "hardsigmoid": exact_hardsigmoid}
    cases = [(name, function, ()) for name, function in functions.items()]
    cases += [("pow", lambda x, p=p: x.pow(p), (p,)) for p in (0.0, 0.5, -0.5, 2.0, 3.0, -1.0, 1.5)]
    cases += [("div_scalar", lambda x, a=a: x / a, (a,)) for a in (3.0, 1e-30)]
    cases += [("clamp", lambda x: x.clamp(-1, 3), (-1, 3)), ("hardtanh", F.relu6, (0, 6)), ("leaky_relu", F.leaky_relu, (0.01,)),
              ("elu", F.elu, (1,)), ("softplus", F.softplus, (1, 20)), ("hardsigmoid", F.hardsigmoid, ()),
              ("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), ())]
    for op, function, options in cases:
        case = f"{op}/{options[0]}_" if options else f"{op}/"
        samples.add(f"{case}special", function, [SPECIAL], options, exact=exact.get(op))
        samples.add(f"{case}special_f64", function, [SPECIAL_F64], options, exact=exact.get(op))
        samples.add(f"{case}one", function, [[0.75]], options, exact=exact.get(op))
        samples.add(f"{case}empty", function, [torch.zeros(1, 0, 3)], options)


def binary(samples: Samples) -> None:
    functions = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "maximum": torch.maximum,
                 "minimum": torch.minimum}
    pairs = list(zip(*itertools.product(OPERANDS, OPERANDS)))
    for op, function in functions.items():
        samples.add(f"{op}/special", function, pairs)
        samples.add(f"{op}/special_f64", function, [[1e200, 1, 1e-200, 1e250], [1e-200, 5e-324, 1e-180, 1e170]])
        for name, a, b in [("column", (3, 1), (2,)), ("both", (3, 1, 2), (1, 2, 2)), ("one", (1,), (1,)),
                           ("empty", (0, 1, 3), (0, 4, 3)), ("row_of_none", (2, 0), (1, 1))]:
            inputs = [drawn(f"{op}/{name}/x0", *a), drawn(f"{op}/{name}/x1", *b, offset=2)]
            samples.add(f"{op}/{name}", function, inputs)
    condition = [i % 2 for i in range(len(pairs[0]))]
    samples.add("where/special", lambda x, y: torch.where(torch.tensor(condition) != 0, x, y), pairs, condition)


def reductions(samples: Samples) -> None:
    def along(axes):
        return {"sum": lambda x: x.sum(axes), "mean": lambda x: x.mean(axes), "max": lambda x: x.max(axes[0]).values,
                "min": lambda x: x.min(axes[0]).values, "softmax": lambda x: x.softmax(axes[0]),
                "log_softmax": lambda x: x.log_softmax(axes[0]),
                "variance": lambda x: x.var(axes, correction=1)}

    def exact_sum(x):  # PyTorch's sum of [1e30, 1, -1e30] is 0
        sums = [math.fsum(row) if math.isfinite(sum(map(abs, row))) else math.nan for row in x.tolist()]
        rounded = x.sum(1)
        return rounded + (torch.tensor(sums, dtype=x.dtype) - rounded).detach()
    exact = {"sum": exact_sum, "mean": lambda x: exact_sum(x) / x.shape[1]}
    for op, function in along((1,)).items():
        samples.add(f"{op}/special", function, [ROWS], (1,), exact=exact.get(op))
        samples.add(f"{op}/empty", function, [torch.zeros(0, 3)], (1,))
        if op not in ("max", "min"):  # which PyTorch refuses, as Convoy does
            samples.add(f"{op}/of_nothing", function, [torch.zeros(2, 0)], (1,))
        samples.add(f"{op}/size_1", function, [[[2.0], [-3.0]]], (1,))
        samples.add(f"{op}/first_axis", along((0,))[op], [drawn(f"{op}/first_axis/x0", 4, 2, 3)], (0,))
    for op in ("sum", "mean", "variance"):
        samples.add(f"{op}/two_axes", along((0, 2))[op], [drawn(f"{op}/two_axes/x0", 3, 2, 4)], (0, 2))
    for name, offset in OFFSETS.items():
        for op in ("variance", "softmax", "log_softmax"):
            x = drawn(f"{op}/{name}/x0", 2, 64, scale=2)
            samples.add(f"{op}/{name}", along((1,))[op], [x], (1,), offset=offset)


def losses(samples: Samples) -> None:
    def cross_entropy(case: str, rows, smoothing: float, offset: float = 0.0) -> None:
        x = torch.as_tensor(rows, dtype=torch.float64)
        labels = torch.arange(len(x)) % max(x.shape[1], 1)
        samples.add(f"cross_entropy/{case}", ones=True, inputs=[x], options=[smoothing, *labels.tolist()], offset=offset,
                    function=lambda x: F.cross_entropy(x, labels, label_smoothing=smoothing, reduction="none"))
    for smoothing in (0.0, 0.25):
        cross_entropy(f"{smoothing}_special", ROWS, smoothing)
        cross_entropy(f"{smoothing}_empty", torch.zeros(0, 3), smoothing)
        cross_entropy(f"{smoothing}_one_class", [[5.0], [-7.0]], smoothing)
        for name, offset in OFFSETS.items():
            for classes in (10, 40):  # a GPU computes rows of up to 16 classes in another way
                case = f"{smoothing}_{name}_{classes}"
                cross_entropy(case, drawn(f"cross_entropy/{case}/x0", 4, classes, scale=2), smoothing, offset)
    cross_entropy("negative", [[-745.0, -746, -744]], 0.0)
    targets = [0, 1, 0.25]
    ops = {"mse_loss": (F.mse_loss, OPERANDS, OPERANDS, None),
           "binary_cross_entropy_with_logits": (F.binary_cross_entropy_with_logits,
                                                [0, 1, -2, 30, -30, MAX, -MAX, SMALLEST, INF, -INF, NAN], targets, exact_bce),
           "kl_divergence": (F.kl_div, [0, -1, -100, -MAX, -INF, NAN], [*targets, 1e-30], None)}
    for op, (function, left, right, exact) in ops.items():
        each = lambda x, t, function=function: function(x, t, reduction="none")
        samples.add(f"{op}/special", each, list(zip(*itertools.product(left, right))), exact=exact)
        samples.add(f"{op}/empty", each, [torch.zeros(0, 3), torch.zeros(0, 3)])
        samples.add(f"{op}/one", each, [[-0.5], [0.25]])


def normalizations(samples: Samples) -> None:
    def parameters(case: str, channels: int) -> list:
        return [drawn(f"{case}/x1", channels, scale=0.5, offset=1), drawn(f"{case}/x2", channels)]

    def norm(case: str, x, function, options=(), offset: float = 0.0) -> None:
        x = torch.as_tensor(x, dtype=torch.float64)
        samples.add(case, function, [x, *parameters(case, x.shape[1])], options, offset)

    def layer(x, weight, bias):
        return F.layer_norm(x, weight.shape, weight, bias)

    def groups(count):
        return lambda x, weight, bias: F.group_norm(x, count, weight, bias)

    def batch(x, weight, bias):
        return F.batch_norm(x, None, None, weight, bias, training=True)
    # The fused activation: dx2, the sum of dy where the result is positive or NaN, is not NaN itself.
    for case, rows in {"special": [[1.0, INF, NAN, 2], [2, 1, 1, 2], [4, 1, 1, 2]], "drawn": drawn("batch_norm_relu/x", 8, 4)}.items():
        norm(f"batch_norm_relu/{case}", rows, lambda *x: F.relu(batch(*x)))
        given = [torch.as_tensor(rows), *parameters(f"batch_norm_relu/{case}", 4), drawn(f"batch_norm_relu/{case}/x3", len(rows), 4)]
        samples.add(f"batch_norm_relu/{case}_residual", lambda x, w, b, r: F.relu(batch(x, w, b) + r), given)
    norm("layer_norm/special", ROWS, layer)
    norm("layer_norm/size_1", [[2.0], [-3.0]], layer)
    norm("layer_norm/empty", torch.zeros(0, 3), layer)
    norm("group_norm/special", [[*row, *reversed(row)] for row in ROWS], groups(2), (2,))
    norm("group_norm/empty", torch.zeros(0, 4), groups(2), (2,))
    norm("batch_norm/size_1", [[2.0], [-3.0]], batch)
    norm("batch_norm/special", [[1.0, INF, NAN, 2], [2, 1, 1, 2], [4, 1, 1, 2]], batch)
    for name, offset in OFFSETS.items():
        norm(f"layer_norm/{name}", drawn(f"layer_norm/{name}/x0", 3, 64, scale=2), layer, (), offset)
        norm(f"group_norm/{name}", drawn(f"group_norm/{name}/x0", 2, 6, 3, 4, scale=2), groups(2), (2,), offset)
        norm(f"batch_norm/{name}", drawn(f"batch_norm/{name}/x0", 24, 4, scale=2), batch, (), offset)


def windows(samples: Samples) -> None:
    image = torch.tensor([[0, 1, NAN, 2], [INF, 3, -1, 2], [1, -INF, NAN, -INF], [-INF, -INF, 4, -0.0]]).reshape(1, 1, 4, 4)
    for op, pool in {"max_pool2d": F.max_pool2d, "avg_pool2d": F.avg_pool2d}.items():
        for kernel, stride, padding in [(2, 2, 0), (3, 1, 1)]:
            function = lambda x, pool=pool, window=(kernel, stride, padding): pool(x, *window)
            case, options = f"{op}/k{kernel}s{stride}p{padding}", (kernel, stride, padding)
            samples.add(f"{case}_special", function, [image], options)
            samples.add(f"{case}_empty", function, [torch.zeros(0, 2, 4, 4)], options)
            samples.add(f"{case}_one", function, [drawn(f"{case}_one/x0", 1, 2, kernel, kernel)], options)
    samples.add("global_avg_pool2d/special", lambda x: x.mean((2, 3)), [image])
    samples.add("global_avg_pool2d/empty", lambda x: x.mean((2, 3)), [torch.zeros(0, 2, 3, 3)])
    for case, x, filter, stride, padding in [("one_pixel", (1, 3, 1, 1), (4, 3, 3, 3), 1, 1), ("empty", (0, 3, 4, 4), (4, 3, 3, 3), 1, 1),
                                             ("point", (2, 4, 2, 3), (3, 4, 1, 1), 1, 0), ("strided", (1, 2, 5, 4), (3, 2, 3, 3), 2, 1)]:
        name = f"conv2d/{case}"
        inputs = [drawn(f"{name}/x0", *x), drawn(f"{name}/x1", *filter), drawn(f"{name}/x2", filter[0])]
        samples.add(name, lambda x, w, b, at=(stride, padding): F.conv2d(x, w, b, *at), inputs, (stride, padding))


def products(samples: Samples) -> None:
    for case, a, b in [("one", (1, 1), (1, 1)), ("no_terms", (2, 0), (0, 3)), ("no_rows", (0, 2), (2, 3)),
                       ("no_columns", (2, 3), (3, 0)), ("row", (1, 5), (5, 3)), ("no_batch", (0, 2, 3), (0, 3, 2))]:
        samples.add(f"matmul/{case}", torch.matmul, [drawn(f"matmul/{case}/x0", *a), drawn(f"matmul/{case}/x1", *b)])
    samples.add("matmul/special", torch.matmul, [ROWS, [[1, 0.5], [2, -1], [0, 1]]])
    for case, x, weight in [("no_rows", (0, 3), (2, 3)), ("no_features", (2, 0), (3, 0)), ("one", (1, 1), (1, 1))]:
        inputs = [drawn(f"linear/{case}/x0", *x), drawn(f"linear/{case}/x1", *weight), drawn(f"linear/{case}/x2", weight[0])]
        samples.add(f"linear/{case}", F.linear, inputs)
    # Scores of about 2048 that float32 computes exactly: all queries have the same large part.
    q, k = drawn("attention/q", 1, 5, 3, scale=4).round(), drawn("attention/k", 1, 6, 3, scale=4).round()
    q[..., 0], k[..., 0] = 64, 32
    v = drawn("attention/v", 1, 6, 2)
    for causal in (0, 1):
        function = lambda q, k, v, causal=causal: F.scaled_dot_product_attention(q, k, v, is_causal=bool(causal), scale=0.25)
        samples.add(f"attention/large_scores_{causal}", function, [q, k, v], (causal,))
        samples.add(f"attention/one_{causal}", function, [q[:, :1], k[:, :1], v[:, :1]], (causal,))
        samples.add(f"attention/empty_{causal}", function, [q[:0], k[:0], v[:0]], (causal,))


def compute() -> dict:
    samples = Samples()
    for family in (unary, binary, reductions, losses, normalizations, windows, products):
        family(samples)
    return samples.stored
