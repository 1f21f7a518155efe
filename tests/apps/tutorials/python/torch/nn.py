"""In place of torch.nn: the layers of docs/files.md."""


class Conv2d:
    def __init__(self, in_channels, out_channels, kernel_size, padding=0, bias=True):
        assert not bias and padding == kernel_size // 2
        self.shape = [out_channels, in_channels, kernel_size, kernel_size]


class Identity:
    pass
