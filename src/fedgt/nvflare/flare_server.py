"""The server's half: a Collab object whose main function runs the program of the server."""

from typing import Any

from nvflare.collab import collab

from fedgt.nvflare.local_file import program_at, read_local_file


class FlareServer:
    """The Collab object of the server; a job names it (`FlareJob`), FLARE makes it.

    Its program is `main(clients, config)` of the server's `local/fedgt.toml`. It gives a `FederationRun` the
    `FlareTransport` of these clients.

    Args:
        config: Of the job, for `fedgt.nvflare.inputs_of`.

    Examples:
        >>> from fedgt.nvflare import FlareServer
        >>> FlareServer(config={"learning-rate": 0.05}).config
        {'learning-rate': 0.05}
    """

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        """Nothing is read yet. FLARE writes the attribute of this name into the job."""
        self.config = dict(config or {})

    def _run(self) -> None:
        """Run the program of this server."""
        told = read_local_file(collab.fl_ctx, "main")
        program_at(told.program)(collab.clients, self.config)

    run = collab.main(_run)
