"""The two programs of the example: how a site trains, and the run. No job brings them: each machine has its own."""

from collections.abc import Collection, Mapping
from typing import Any

from mnist_app import task
from mnist_app.federation import hold

from fedgt import TrainedModel
from fedgt.nvflare import FlareTransport, SiteContext, inputs_of
from fedgt.types import Parameters


def train(parameters: Parameters, round: int, site: SiteContext) -> TrainedModel:
    """At a site. Global model in, trained model and number of samples out."""
    number = int(site.name.rpartition("-")[2])
    trained, samples = task.trained_at(number, parameters, round, site.config)
    return TrainedModel(parameters=trained, samples=samples)


def main(clients: Collection[Any], config: Mapping[str, Any]) -> None:
    """At the server. Run the rounds and print what was found."""
    hold(lambda names, credentials: FlareTransport(clients, names, credentials=credentials), config, inputs_of(config))
