"""The one option that limits how long a command goes on."""

from typing import Annotated

import typer

from fedgt.deadline import SECONDS

Seconds = Annotated[
    float,
    typer.Option(help="How long to search and prove, about; what is open then is said, and more seconds go further."),
]
"""`--seconds`, with `DEFAULT_SECONDS`."""

DEFAULT_SECONDS = SECONDS
