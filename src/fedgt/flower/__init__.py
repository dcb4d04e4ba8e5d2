"""The same federation on Flower: `client_app` for the sites, `FedGT` for the server. Needs the extra `flower`.

    app = client_app(train)                                    # client_app.py: train(parameters, round, context)

    @server.main()                                             # server_app.py
    def main(grid, context):
        for record in FedGT(grouping=..., privacy=4, ...).start(grid, parameters):
            print(record.round, record.excluded)

Names are imported when they are first used: a site's process starts for every message and must not load the server's side.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedgt.flower.supported import require_supported

if TYPE_CHECKING:
    from fedgt.flower.grid_transport import FlowerTransport
    from fedgt.flower.inprocess import InProcessGrid
    from fedgt.flower.optimizer import adaptive
    from fedgt.flower.server_app import FedGT, FlowerRound
    from fedgt.flower.site import Site, client_app, register, site_of

require_supported()

_HOMES = {
    "site": ("Site", "client_app", "register", "site_of"),
    "inprocess": ("InProcessGrid",),
    "optimizer": ("adaptive",),
    "server_app": ("FedGT", "FlowerRound"),
    "grid_transport": ("FlowerTransport",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "FedGT",
    "FlowerRound",
    "FlowerTransport",
    "InProcessGrid",
    "Site",
    "adaptive",
    "client_app",
    "register",
    "site_of",
]


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        return getattr(import_module(f"fedgt.flower.{_HOME_OF[name]}"), name)
    raise AttributeError(f"module 'fedgt.flower' has no attribute {name!r}")
