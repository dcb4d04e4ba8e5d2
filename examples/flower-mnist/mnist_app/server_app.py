"""The server's half: the run, over Flower's grid."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAdam

from fedgt.flower import FlowerTransport, adaptive, inputs_of
from mnist_app.federation import hold

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds and print what was found."""
    config = context.run_config
    hold(
        lambda names, credentials: FlowerTransport(grid, names, credentials=credentials, wait=float(config["wait"])),
        config,
        inputs_of(config),
        next_model=adaptive(FedAdam(eta=0.01)) if config["optimizer"] == "fedadam" else None,
    )
