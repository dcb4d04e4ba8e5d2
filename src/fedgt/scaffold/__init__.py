"""`fedgt new`: a folder with an app that runs as it is, for a consortium to put its own model and data into."""

from fedgt.scaffold.answers import FRAMEWORKS, Answers, Framework
from fedgt.scaffold.flower_app import write_flower_app

__all__ = ["FRAMEWORKS", "Answers", "Framework", "write_flower_app"]
