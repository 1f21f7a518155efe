"""In place of Weights & Biases: records the calls."""
from recorder import record


class Run:
    def __enter__(self):
        return self

    def __exit__(self, *error):
        record("run.finish")

    def log(self, data, step=None):
        assert all(isinstance(value, (int, float)) for value in data.values()), data
        record("run.log", numbers=data, step=step)


def init(project=None, name=None, config=None):
    record("wandb.init", project=project, name=name, config=config)
    return Run()
