"""The site's half. The train function is all that a site writes; keys, masks and policies are fedgt's."""

import numpy as np
from flwr.app import Context

from fedgt.engine import TrainedModel
from fedgt.flower import client_app
from fedgt.types import Parameters
from mnist_app import task


def train(parameters: Parameters, round: int, context: Context) -> TrainedModel:
    """Global model in, trained model and number of samples out."""
    config, number = context.run_config, int(context.node_config["partition-id"])
    seed = int(config["seed"])
    images, labels = task.load(str(config["data"]), "train")
    mine = task.partition(number, seed)
    images, labels = images[mine], labels[mine]
    if str(number) in str(config["malicious"]).split(","):
        labels = np.where(labels == task.SOURCE, task.TARGET, labels)
    trained = task.train(parameters, images, labels, seed=seed * 1_000_000 + round * 1_000 + number)
    return TrainedModel(parameters=trained, samples=len(labels))


app = client_app(train, minimum_group_size=3)
