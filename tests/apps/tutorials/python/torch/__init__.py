"""In place of PyTorch."""
from . import nn
