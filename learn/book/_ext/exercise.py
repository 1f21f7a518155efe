"""The directive {exercise} ID: title, goal and commands of an exercise, from its exercise.toml."""
import pathlib
import tomllib

from docutils import nodes
from docutils.parsers.rst import Directive

EXERCISES = pathlib.Path(__file__).resolve().parents[2] / "exercises"


class Exercise(Directive):
    required_arguments = 1

    def run(self):
        id_ = self.arguments[0]
        path = EXERCISES / id_ / "exercise.toml"
        if not path.is_file():
            raise self.error(f"found exercise {id_}, expected a directory of {EXERCISES}")
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
        title = nodes.paragraph("", "", nodes.strong("", f"{id_}: {settings['title']}"), nodes.Text(f" ({settings['points']} points). {settings['goal']}"))
        commands = f"convoy-learn start {id_}\nconvoy-learn check {id_}\n"
        return [nodes.container("", title, nodes.literal_block(commands, commands, language="text"), classes=["exercise"])]


def setup(app):
    app.add_directive("exercise", Exercise)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
