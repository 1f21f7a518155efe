"""Sphinx's configuration of the book. Build: sphinx-build -W -n learn/book build/book"""
import pathlib
import sys

from pygments.lexers import CppLexer
from pygments.token import Comment, Error

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "_ext"))

project = "CUDA kernels and distributed training without a GPU"
author = "The Convoy developers"
copyright = author
extensions = ["myst_parser", "mathml", "exercise"]
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
html_math_renderer = "mathml"
html_theme = "alabaster"
html_theme_options = {"description": "The book of Convoy", "page_width": "60em", "sidebar_width": "14em",
                      "fixed_sidebar": True, "font_family": "Georgia, serif"}
html_static_path = ["_ext/book.css"]
html_css_files = ["book.css"]
html_show_sourcelink = False
html_copy_source = False
exclude_patterns = ["README.md", "programs"]
highlight_language = "text"


class Listing(CppLexer):
    """C++ in which … stands for omitted lines."""

    def get_tokens_unprocessed(self, *arguments, **options):
        for index, token, text in super().get_tokens_unprocessed(*arguments, **options):
            yield index, Comment if token is Error and text == "…" else token, text


def setup(app):
    app.add_lexer("cpp", Listing)
