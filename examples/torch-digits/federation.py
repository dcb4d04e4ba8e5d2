"""Fifteen sites train a network in torch on the digits of scikit-learn; four of them label every 9 as a 3.

    pip install ../.. torch      # here, in a checkout of fedgt
    python federation.py

The hidden layer is frozen, as in transfer learning, so that the classification layer tells who poisons. Networks trained
from end to end take `ScreenSettings(features="outputs")`; see docs/howto/own-model.md.
"""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from fedgt import FederationRun, ScreenSettings, TrainedModel, Validation

torch.set_num_threads(1)
images, labels = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(labels))
x = torch.tensor(images[order] / 16.0, dtype=torch.float32)
y = torch.tensor(labels[order])
VALIDATION, TEST = slice(0, 200), slice(200, 500)


def make_model():
    """64 pixels, 128 random features, 10 classes."""
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    model[0].requires_grad_(False)
    return model


def to_arrays(model):
    """A state_dict as numpy arrays."""
    return {name: tensor.cpu().numpy().copy() for name, tensor in model.state_dict().items()}


def from_arrays(arrays):
    """A model with this state."""
    model = make_model()
    model.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in arrays.items()})
    return model


class Site:
    """Trains on its own samples."""

    def __init__(self, images, labels):
        """Keep them."""
        self.x, self.y = images, labels

    def train(self, parameters, *, round):
        """Five epochs of SGD, starting at the global model."""
        model = from_arrays(parameters)
        optimizer = torch.optim.SGD(model[2].parameters(), lr=0.05)
        torch.manual_seed(round)
        for _ in range(5):
            for batch in torch.randperm(len(self.y)).split(8):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(self.x[batch]), self.y[batch]).backward()
                optimizer.step()
        return TrainedModel(parameters=to_arrays(model), samples=len(self.y))


@torch.no_grad()
def scores(parameters, part):
    """Scores of all classes."""
    return from_arrays(parameters)(x[part]).numpy()


@torch.no_grad()
def seen(parameters):
    """What the classification layer sees of the validation samples."""
    return from_arrays(parameters)[:2](x[VALIDATION]).numpy()


def main():
    """Run the federation and print what is found."""
    shares = np.array_split(np.arange(500, len(y)), 15)
    sites = {f"site-{number:02d}": Site(x[rows], y[rows].clone()) for number, rows in enumerate(shares)}
    for name in ("site-02", "site-05", "site-11", "site-13"):
        sites[name].y[sites[name].y == 9] = 3

    run = FederationRun(
        sites,
        privacy=4,
        samples={name: len(site.y) for name, site in sites.items()},
        validation=Validation(
            logits=lambda parameters: scores(parameters, VALIDATION), labels=y[VALIDATION].numpy(), inputs=seen
        ),
        screen=ScreenSettings(layer="2.weight"),
        rounds=5,
    )
    for step in run.rounds(to_arrays(make_model())):
        accuracy = np.mean(scores(step.parameters, TEST).argmax(axis=1) == y[TEST].numpy())
        print(f"round {step.round}: {step.purpose}, accuracy {accuracy:.2f}, excluded:", *step.excluded)


if __name__ == "__main__":
    main()
