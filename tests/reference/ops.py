"""Computes single operations and their gradients, in float64 from inputs that float32 represents exactly."""

import torch
import torch.nn.functional as F

import formula
import samples


def tensor(name: str, *shape, scale: float = 1.0, offset: float = 0.0, grad: bool = True) -> torch.Tensor:
    return torch.from_numpy(formula.values(name, shape, scale, offset)).double().requires_grad_(grad)


def record(out: dict, case: str, y: torch.Tensor, **inputs: torch.Tensor) -> None:
    """Stores y and the gradients of the inputs, computed from the formula's dy."""
    y.backward(tensor(f"{case}/dy", *y.shape, grad=False))
    out[f"{case}/y"] = y
    for name, x in inputs.items():
        out[f"{case}/d{name}"] = x.grad


# case: (x [N, C, H, W], output channels, kernel, stride, padding)
CONVOLUTIONS = {
    "conv2d/k3s1p1": ((2, 3, 5, 6), 4, 3, 1, 1),
    "conv2d/k3s2p1": ((2, 3, 7, 6), 4, 3, 2, 1),
    "conv2d/k5s1p0": ((2, 2, 7, 6), 3, 5, 1, 0),
    "conv2d/k1s2p0": ((2, 4, 5, 6), 5, 1, 2, 0),
    "conv2d/k7s2p3": ((1, 3, 9, 8), 4, 7, 2, 3),
    "conv2d/k2s3p1": ((2, 2, 7, 8), 3, 2, 3, 1),
    "conv2d/k3s1p1_16": ((1, 16, 7, 7), 16, 3, 1, 1),
}


def convolutions(out: dict) -> None:
    for case, (shape, channels, kernel, stride, padding) in CONVOLUTIONS.items():
        x = tensor(f"{case}/x", *shape)
        filter = tensor(f"{case}/filter", channels, shape[1], kernel, kernel)
        bias = tensor(f"{case}/bias", channels)
        record(out, case, F.conv2d(x, filter, bias, stride, padding), x=x, filter=filter, bias=bias)


def batch_norms(out: dict) -> None:
    for case, shape in {"batch_norm/image": (4, 3, 3, 2), "batch_norm/flat": (6, 5)}.items():
        channels = shape[1]
        gamma = tensor(f"{case}/gamma", channels, scale=0.5, offset=1)
        beta = tensor(f"{case}/beta", channels)
        mean = torch.zeros(channels, dtype=torch.float64)
        var = torch.ones(channels, dtype=torch.float64)
        for step in range(3):  # the results of the last step are stored
            gamma.grad = beta.grad = None
            x = tensor(f"{case}/x{step}", *shape, scale=2, offset=0.5)
            y = F.batch_norm(x, mean, var, gamma, beta, training=True, momentum=0.1, eps=1e-5)
            y.backward(tensor(f"{case}/dy{step}", *shape, grad=False))
        out |= {f"{case}/y": y, f"{case}/dx": x.grad, f"{case}/dgamma": gamma.grad, f"{case}/dbeta": beta.grad}
        out |= {f"{case}/running_mean": mean, f"{case}/running_var": var}

        gamma.grad = beta.grad = None
        x = tensor(f"{case}/inference/x", *shape)
        y = F.batch_norm(x, mean, var, gamma, beta, training=False, eps=1e-5)
        record(out, f"{case}/inference", y, x=x, gamma=gamma, beta=beta)


def pools(out: dict) -> None:
    for kernel, stride, padding in [(2, 2, 0), (3, 2, 1)]:
        for kind, pool in {"max_pool": F.max_pool2d, "avg_pool": F.avg_pool2d}.items():
            case = f"{kind}/k{kernel}s{stride}p{padding}"
            x = tensor(f"{case}/x", 2, 3, 7, 6)
            record(out, case, pool(x, kernel, stride, padding), x=x)
    x = tensor("global_avg_pool/x", 2, 3, 5, 4)
    record(out, "global_avg_pool", x.mean(dim=(2, 3)), x=x)


def unary_ops(out: dict) -> None:
    # name: (function, scale and offset of its arguments)
    functions = {"relu": (F.relu, 6, 0), "gelu": (F.gelu, 6, 0), "silu": (F.silu, 6, 0), "hardswish": (F.hardswish, 6, 0),
                 "tanh": (torch.tanh, 6, 0), "sigmoid": (torch.sigmoid, 6, 0), "exp": (torch.exp, 2, 0),
                 "log": (torch.log, 1.5, 2), "sqrt": (torch.sqrt, 1.5, 2), "abs": (torch.abs, 6, 0),
                 "pow": (lambda x: x.pow(1.5), 1.5, 2), "hardsigmoid": (samples.exact_hardsigmoid, 6, 0),
                 "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), 6, 0), "hardtanh": (F.relu6, 8, 0),
                 "clamp": (lambda x: x.clamp(-0.5, 0.75), 6, 0), "leaky_relu": (F.leaky_relu, 6, 0), "elu": (F.elu, 6, 0),
                 "softplus": (lambda x: F.softplus(x, 2, 1.5), 6, 0)}
    for name, (function, scale, offset) in functions.items():
        x = tensor(f"{name}/x", 5, 7, scale=scale, offset=offset)
        record(out, name, function(x), x=x)


def arrays(out: dict) -> None:
    """Stores broadcasting, reductions and movement. Shapes are those of PyTorch and of Convoy alike."""
    def case(name: str, function, *shapes, offset: float = 0.0) -> None:
        inputs = {key: tensor(f"{name}/{key}", *shape, offset=offset) for key, shape in zip("ab", shapes)}
        record(out, name, function(*inputs.values()), **inputs)

    case("add", torch.add, (3, 1, 5), (4, 1))
    case("sub", torch.sub, (3, 1, 5), (4, 1))
    case("mul", torch.mul, (3, 1, 5), (4, 1))
    case("div", torch.div, (3, 1, 5), (4, 1), offset=2)
    case("maximum", torch.maximum, (3, 1, 5), (4, 1))
    case("minimum", torch.minimum, (3, 1, 5), (4, 1))
    case("where", lambda x, y: torch.where(torch.arange(5) % 2 == 0, x, y), (3, 1, 5), (4, 1))
    case("sum", lambda x: x.sum((0, 2)), (3, 4, 5))
    case("mean", lambda x: x.mean((1, -1), keepdim=True), (3, 4, 5))
    case("variance", lambda x: x.var((0, 2)), (3, 4, 5))
    case("max", lambda x: x.max(1).values, (3, 4, 5))
    case("min", lambda x: x.min(-1, keepdim=True).values, (3, 4, 5))
    case("softmax", lambda x: x.softmax(1), (3, 4, 5))
    case("log_softmax", lambda x: x.log_softmax(-1), (3, 4, 5))
    case("permute", lambda x: x.permute(2, 0, 1), (3, 4, 5))
    case("transpose", lambda x: x.transpose(0, 2), (3, 4, 5))
    case("slice", lambda x: x[:, 1:-1:2], (3, 6, 2))
    case("concat", lambda x, y: torch.cat([x, y, x], 1), (3, 2), (3, 4))
    case("stack", lambda x, y: torch.stack([x, y], -1), (3, 2), (3, 2))
    case("pad", lambda x: F.pad(x, (1, 0, 2, 1), value=0.5), (3, 2, 4))


def linears(out: dict) -> None:
    x, weight, bias = tensor("linear/x", 3, 5), tensor("linear/weight", 4, 5), tensor("linear/bias", 4)
    record(out, "linear", F.linear(x, weight, bias), x=x, weight=weight, bias=bias)


def cross_entropies(out: dict) -> None:
    for case, smoothing in {"cross_entropy/plain": 0.0, "cross_entropy/smoothed": 0.1}.items():
        logits = tensor(f"{case}/logits", 5, 7, scale=4)
        labels = torch.from_numpy(formula.labels(f"{case}/labels", 5, 7))
        losses = F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="none")
        losses.sum().backward()
        out |= {f"{case}/losses": losses, f"{case}/dlogits": logits.grad}


# case: (optimizer, its settings, rate of the first step, norm to clip to). In cases of "…/missing" the parameter b has no
# gradient in the first and the third step.
OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {}, 0.1, None),
    "sgd/momentum": (torch.optim.SGD, {"momentum": 0.9}, 0.1, None),
    "sgd/nesterov_decay": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.05}, 0.1, None),
    "sgd/clipped": (torch.optim.SGD, {"momentum": 0.9}, 0.1, 0.75),
    "adam": (torch.optim.Adam, {}, 0.01, None),
    "adam/decay": (torch.optim.Adam, {"weight_decay": 0.05}, 0.01, None),
    "adamw": (torch.optim.AdamW, {"weight_decay": 0.05}, 0.01, None),
    "adam/missing": (torch.optim.Adam, {}, 0.01, None),
    "adamw/missing": (torch.optim.AdamW, {"weight_decay": 0.05}, 0.01, None),
    "rmsprop": (torch.optim.RMSprop, {}, 0.01, None),
    "rmsprop/momentum": (torch.optim.RMSprop, {"momentum": 0.9, "alpha": 0.9, "eps": 1e-3, "weight_decay": 0.05}, 0.01, None),
    "rmsprop/missing": (torch.optim.RMSprop, {"momentum": 0.9}, 0.01, None),
}


def optimizers(out: dict) -> None:
    for case, (kind, settings, lr, clip) in OPTIMIZERS.items():
        parameters = {"a": tensor(f"{case}/a", 3, 4), "b": tensor(f"{case}/b", 5)}
        optimizer = kind(parameters.values(), lr=lr, **settings)
        trajectories = {name: [] for name in parameters}
        for step in range(5):
            optimizer.param_groups[0]["lr"] = lr * (1 - step / 10)
            for name, parameter in parameters.items():
                parameter.grad = tensor(f"{case}/{name}/grad{step}", *parameter.shape, grad=False)
            if case.endswith("/missing") and step in (0, 2):
                parameters["b"].grad = None
            if clip is not None:
                torch.nn.utils.clip_grad_norm_(parameters.values(), clip)
            optimizer.step()
            for name, parameter in parameters.items():
                trajectories[name].append(parameter.detach().clone())
        out |= {f"{case}/{name}": torch.stack(steps) for name, steps in trajectories.items()}  # [5, shape]


def compute() -> dict:
    out = {}
    for compute_family in (convolutions, batch_norms, pools, unary_ops, arrays, linears, cross_entropies, optimizers):
        compute_family(out)
    return out
