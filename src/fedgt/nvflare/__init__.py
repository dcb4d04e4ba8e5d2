"""The same federation on NVIDIA FLARE, over its Collab API. Needs the extra `nvflare`.

    def train(parameters, round, site):                         # at the sites: hospital/training.py
        ...

    def main(clients, config):                                  # at the server: consortium/server.py
        run = FederationRun(FlareTransport(clients, names), privacy=4, inputs=inputs_of(config), ...)
        for step in run.rounds(parameters):
            print(step.round, step.excluded)

    job = FlareJob("winter", config={"learning-rate": 0.05})    # whoever submits
    job.simulate(sites, local="fedgt.toml", workspace=...)      # on one machine
    job.export(folder)                                          # for `nvflare job submit`

A job names no program: what runs at a machine stands in a file of that machine, `local/fedgt.toml`. Names are imported when
they are first used.
"""

from typing import TYPE_CHECKING

from fedgt.lazy_names import lazy_names
from fedgt.nvflare.flare_releases import require_supported

if TYPE_CHECKING:
    from fedgt.engine.site_setup import inputs_of
    from fedgt.nvflare.call_transport import FlareTransport
    from fedgt.nvflare.flare_job import ALLOWED, FlareJob
    from fedgt.nvflare.flare_server import FlareServer
    from fedgt.nvflare.flare_site import FlareSite, SiteContext

require_supported()

__all__ = ["ALLOWED", "FlareJob", "FlareServer", "FlareSite", "FlareTransport", "SiteContext", "inputs_of"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "fedgt.engine.site_setup": ("inputs_of",),
        "call_transport": ("FlareTransport",),
        "flare_job": ("ALLOWED", "FlareJob"),
        "flare_server": ("FlareServer",),
        "flare_site": ("FlareSite", "SiteContext"),
    },
)
