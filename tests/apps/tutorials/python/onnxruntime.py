"""In place of ONNX Runtime: reads the names and the metadata of a model, and computes nothing."""
import json
import pathlib
import re
import types

import numpy
from recorder import record


class InferenceSession:
    def __init__(self, path):
        self.model = pathlib.Path(path).read_bytes()

    def get_modelmeta(self):
        # An entry of the metadata: field 1 is the key, and field 2 the value, after its length as a varint.
        value = re.search(rb"\x0a\x07classes\x12[\x00-\x7f](\[[^\]]*\])", self.model)[1].decode()
        return types.SimpleNamespace(custom_metadata_map={"classes": value})

    def run(self, outputs, inputs):
        (name, images), = inputs.items()
        assert images.dtype == numpy.float32, images.dtype
        for each in (name, *outputs):
            assert each.encode() in self.model, each
        record("session.run", classes=json.loads(self.get_modelmeta().custom_metadata_map["classes"]))
        return [None for _ in outputs]
