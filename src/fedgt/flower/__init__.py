"""The same federation on Flower: `client_app` for the sites, a transport for the server. Needs the extra `flower`.

    app = client_app(train)                                    # client_app.py: train(parameters, round, context)

    @server.main()                                             # server_app.py
    def main(grid, context):
        run = FederationRun(FlowerTransport(grid, names), privacy=4, inputs=inputs_of(context.run_config), ...)
        for step in run.rounds(parameters):
            print(step.round, step.excluded)

Names are imported when they are first used: a site's process starts for every message and must not load the server's side.
"""

from typing import TYPE_CHECKING

from fedgt.flower.supported import require_supported
from fedgt.lazy_names import lazy_names

if TYPE_CHECKING:
    from fedgt.engine.site_setup import Site, inputs_of
    from fedgt.flower.grid_transport import FlowerTransport
    from fedgt.flower.inprocess import InProcessGrid
    from fedgt.flower.optimizer import adaptive
    from fedgt.flower.site import client_app, register, site_of

require_supported()

__all__ = [
    "FlowerTransport",
    "InProcessGrid",
    "Site",
    "adaptive",
    "client_app",
    "inputs_of",
    "register",
    "site_of",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "fedgt.engine.site_setup": ("Site", "inputs_of"),
        "site": ("client_app", "register", "site_of"),
        "inprocess": ("InProcessGrid",),
        "optimizer": ("adaptive",),
        "grid_transport": ("FlowerTransport",),
    },
)
