"""The op of apps/examples (softsign) in PyTorch: forward, backward and the check of its gradient.

python3 bench/python/examples/custom_op.py
"""

import torch


class Softsign(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        return x / (1 + x.abs())

    @staticmethod
    def backward(context, dy):
        (x,) = context.saved_tensors
        return dy / (1 + x.abs()) ** 2


def main() -> None:
    softsign = Softsign.apply
    x = (12 * torch.rand(3, 5, dtype=torch.float64) - 6).requires_grad_()
    w = torch.randn(5, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(softsign, (x,))
    torch.autograd.gradcheck(lambda x, w: (softsign(x) * w).softmax(-1), (x, w))
    print("the gradients of softsign are right")
    x = torch.tensor([-1.0, 0.0, 1.0], requires_grad=True)
    y = softsign(x)
    y.sum().backward()
    print(f"softsign(-1) = {y[0].item():.4f}, slope {x.grad[0].item():.4f}")


if __name__ == "__main__":
    main()
