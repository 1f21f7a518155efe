"""Records calls, one JSON object per line of the file $RECORDED_CALLS."""
import json
import os


def record(call, **arguments):
    with open(os.environ["RECORDED_CALLS"], "a", encoding="utf-8") as file:
        file.write(json.dumps({"call": call, **arguments}) + "\n")
