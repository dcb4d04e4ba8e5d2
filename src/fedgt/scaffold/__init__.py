"""`fedgt new`: a folder with an app that runs as it is, for a consortium to put its own model and data into."""

from fedgt.scaffold.answers import FRAMEWORKS, Answers, Framework
from fedgt.scaffold.app_folder import Engine, write_app

__all__ = ["FRAMEWORKS", "Answers", "Engine", "Framework", "write_app"]
