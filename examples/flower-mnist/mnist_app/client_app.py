"""The site's half. The train function is all that a site writes; keys, masks and policies are fedgt's."""

from flwr.app import Context

from fedgt.engine import TrainedModel
from fedgt.flower import client_app
from fedgt.types import Parameters


def train(parameters: Parameters, round: int, context: Context) -> TrainedModel:
    """Global model in, trained model and number of samples out."""
    # Imported here: a process starts for each of a round's four messages, and only one of them needs torch.
    from mnist_app import task

    number = int(context.node_config["partition-id"])
    trained, samples = task.trained_at(number, parameters, round, context.run_config)
    return TrainedModel(parameters=trained, samples=samples)


app = client_app(train, minimum_group_size=3)
