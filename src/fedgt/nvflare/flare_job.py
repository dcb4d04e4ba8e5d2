"""A FLARE job that runs a federation: simulated on this machine, or exported for `nvflare job submit`.

The job has no code and names no program, so sites need not permit foreign code ("byoc"): their `class_allow_list` has the
classes of `ALLOWED` more. `nvflare.collab.CollabRecipe` makes jobs of the same classes, but ships source files with them,
which is foreign code. Every Collab job names these classes by their paths; FLARE calls their package internal, so
`flare_releases` holds one minor release.
"""

import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path

from nvflare.apis.job_def import ALL_SITES
from nvflare.app_common.default_component_policy import DEFAULT_CLASS_ALLOW_LIST
from nvflare.collab.runtime.controller import CollabController
from nvflare.collab.runtime.executor import CollabExecutor
from nvflare.job_config.api import FedJob

from fedgt.errors import FedGTError, SpecError
from fedgt.nvflare.flare_server import FlareServer
from fedgt.nvflare.flare_site import FlareSite
from fedgt.nvflare.local_file import FILE_NAME, parsed

ALLOWED = tuple(
    f"{one.__module__}.{one.__qualname__}" for one in (CollabController, CollabExecutor, FlareServer, FlareSite)
)
"""What a job is made of; in the `class_allow_list` of `local/resources.json`, of the server and of every site."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


class FlareJob:
    """A job for NVIDIA FLARE: a name and a configuration, the same for the server and for all sites.

    Args:
        name: Letters, digits, _ and -.
        config: Numbers and texts that the programs get; sites with an identity compare it with the plan's.
        minimum_sites: With fewer sites FLARE neither begins the job nor goes on with it. fedgt itself goes on while the
            promise allows it.

    Raises:
        SpecError: If the name has other characters, or the configuration is no table of numbers and texts.

    Examples:
        >>> from fedgt.nvflare import FlareJob
        >>> FlareJob("winter", config={"learning-rate": 0.05}).name
        'winter'
    """

    def __init__(
        self, name: str, *, config: Mapping[str, bool | float | int | str] | None = None, minimum_sites: int = 2
    ) -> None:
        """Nothing is written yet."""
        if not _NAME.fullmatch(name):
            raise SpecError(f"the job is called {name!r}; letters, digits, _ and - are needed")
        told = dict(config or {})
        if wrong := sorted(str(key) for key, value in told.items() if not isinstance(value, bool | int | float | str)):
            raise SpecError(f"of the job's configuration {', '.join(wrong)} is neither a number nor a text")
        self.name = name
        self.config = told
        self.minimum_sites = minimum_sites

    def export(self, folder: str | Path) -> Path:
        """Write the job for `nvflare job submit`.

        Args:
            folder: Where a folder of the job's name is made.

        Returns:
            That folder.

        Examples:
            >>> import tempfile
            >>> from fedgt.nvflare import FlareJob
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     print(FlareJob("winter").export(folder).name)
            winter
        """
        self._made().export_job(str(folder))
        return Path(folder) / self.name

    def simulate(self, sites: Collection[str], *, local: str | Path, workspace: str | Path) -> None:
        """Run the job in FLARE's simulation environment, a process per site. NOT FOR DEPLOYMENT: one user has all keys.

        Args:
            sites: Their names.
            local: The `fedgt.toml` of all of them and of the server; its paths may have `{client}`.
            workspace: A folder for FLARE, which must be empty or new. Logs are there, a folder per site.

        Raises:
            SpecError: If the file does not say what trains and what runs, or the workspace is not empty.
            FedGTError: If the simulation fails.
        """
        local, workspace = Path(local), Path(workspace).absolute()
        for program in ("main", "train"):
            parsed(local, program, name="server")
        if workspace.exists() and any(workspace.iterdir()):
            raise SpecError(f"{workspace} is not empty: give a new folder for the simulation")
        settings = workspace / "local"
        settings.mkdir(parents=True)
        (settings / FILE_NAME).write_bytes(local.read_bytes())
        allowed = {"class_allow_list": [*DEFAULT_CLASS_ALLOW_LIST, *ALLOWED], "allow_log_streaming": False}
        (settings / "resources.json").write_text(json.dumps({"format_version": 2, **allowed}))
        status = self._made().simulator_run(str(workspace), clients=list(sites), threads=len(sites))
        if status:
            raise FedGTError(f"the simulation ended with status {status}; its logs are in {workspace}")

    def _made(self) -> FedJob:
        job = FedJob(self.name, min_clients=self.minimum_sites)
        job.set_app_packages(["fedgt"])  # installed everywhere; FLARE ships the source of other packages
        server = job.to_server(FlareServer(self.config), "_server")
        job.to_server(CollabController(server_obj_id=server), id="controller")
        site = job.to(FlareSite(self.config), ALL_SITES, id="_client")
        job.to(CollabExecutor(client_obj_id=site), ALL_SITES, id="executor", tasks=["*"])
        return job
