"""How far the attack of a simulation got, measured on the test set: knowledge that the defence never has."""

from fedgt.experiment.simulation import Simulation
from fedgt.experiment.spec import ExperimentSpec
from fedgt.train import attack_accuracy, with_trigger
from fedgt.types import IntArray, Parameters


def attack_success(
    spec: ExperimentSpec, simulation: Simulation, parameters: Parameters, predictions: IntArray
) -> float | None:
    """How often the attack of the first kind has its way; None where it aims at no label.

    Args:
        spec: The run.
        simulation: What it simulates.
        parameters: The global model.
        predictions: int64[test samples], by this model.

    Returns:
        For a label flip the fraction of source samples that are taken for the target. For a backdoor the fraction of
        samples of other classes that are taken for the target once they have the whole trigger.
    """
    attack = spec.attack
    if attack.kind == "label-flip":
        return attack_accuracy(predictions, simulation.test_labels, source=attack.source, target=attack.target)
    if attack.kind in ("backdoor", "distributed-backdoor"):
        images = simulation.test_images[simulation.test_labels != attack.target]
        triggered = with_trigger(images, shape=simulation.shape, brightest=simulation.test_images.max())
        return float((simulation.model.predict(parameters, triggered) == attack.target).mean())
    return None
