"""In place of torch.utils.tensorboard: records the scalars."""
from recorder import record


class SummaryWriter:
    def __init__(self, log_dir):
        record("SummaryWriter", log_dir=log_dir)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        record("close")

    def add_scalar(self, tag, scalar_value, global_step):
        assert isinstance(tag, str) and isinstance(scalar_value, (int, float)) and isinstance(global_step, int)
        record("add_scalar", tag=tag, value=scalar_value, step=global_step)
