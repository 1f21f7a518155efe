"""In place of MLflow: records the calls."""
import contextlib

from recorder import record


@contextlib.contextmanager
def start_run(run_name=None):
    record("mlflow.start_run", run_name=run_name)
    yield


def log_params(params):
    record("mlflow.log_params", params=params)


def log_metric(key, value, step=None, timestamp=None):
    assert isinstance(key, str) and isinstance(value, (int, float)) and isinstance(timestamp, int)
    record("mlflow.log_metric", key=key, value=value, step=step)
