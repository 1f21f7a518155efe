"""The op of apps/examples (softplus) in PyTorch: forward, backward and the check of its gradient.

python3 bench/python/examples/custom_op.py
"""

import torch


class Softplus(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        return torch.where(x > 0, x + torch.log1p(torch.exp(-x)), torch.log1p(torch.exp(x)))

    @staticmethod
    def backward(context, dy):
        (x,) = context.saved_tensors
        return dy / (1 + torch.exp(-x))


def main() -> None:
    softplus = Softplus.apply
    x = (12 * torch.rand(3, 5, dtype=torch.float64) - 6).requires_grad_()
    w = torch.randn(5, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(softplus, (x,))
    torch.autograd.gradcheck(lambda x, w: (softplus(x) * w).softmax(-1), (x, w))
    print("the gradients of softplus are right")
    x = torch.tensor([-1.0, 0.0, 1.0], requires_grad=True)
    y = softplus(x)
    y.sum().backward()
    print(f"softplus(-1) = {y[0].item():.4f}, slope {x.grad[0].item():.4f}")


if __name__ == "__main__":
    main()
