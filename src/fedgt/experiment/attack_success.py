"""How far the attack of a simulation got, measured on the test set: knowledge that the defence never has."""

from fedgt.experiment.spec import ExperimentSpec
from fedgt.train import ImageData, attack_accuracy, with_trigger
from fedgt.train.model import Model
from fedgt.types import IntArray, Parameters


def attack_success(
    spec: ExperimentSpec, model: Model, data: ImageData, parameters: Parameters, predictions: IntArray
) -> float | None:
    """How often the attack of the first kind has its way; None where it aims at no label.

    Returns:
        For a label flip the fraction of source samples that are taken for the target. For a backdoor the fraction of
        samples of other classes that are taken for the target once they have the whole trigger.
    """
    attack = spec.attack
    if attack.kind == "label-flip":
        return attack_accuracy(predictions, data.test_labels, source=attack.source, target=attack.target)
    if attack.kind in ("backdoor", "distributed-backdoor"):
        images = data.test_images[data.test_labels != attack.target]
        triggered = with_trigger(images, shape=data.shape, brightest=data.test_images.max())
        return float((model.predict(parameters, triggered) == attack.target).mean())
    return None
