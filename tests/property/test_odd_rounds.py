"""Tests of odd federations end with an answer or a refusal that names what was needed, never with a crash.

Few classes and features, one sample beside twenty times as many, probabilities of exactly 0, models without a score, several
tests with groups of their own, attackers who all do something else, and everything at once.
"""

from typing import get_args

import numpy as np
import pytest

from fedgt.design import from_matrix
from fedgt.errors import FedGTError
from fedgt.evidence import GradedDecoding
from fedgt.federation import DecodeSettings, Features, ScreenSettings, Validation, exclude
from fedgt.federation.group_means import GroupMeans
from fedgt.federation.measure import measured
from fedgt.federation.settings import OnSuspicious
from fedgt.grouping import Grouping
from fedgt.types import FloatArray, Parameters, SetEvidence

RUNS, PARTS = 2000, 40
FEATURES: tuple[Features, ...] = get_args(Features)
POLICIES: tuple[OnSuspicious, ...] = get_args(OnSuspicious)


def groups(rng: np.random.Generator, clients: int) -> FloatArray:
    """Three to eight drawn groups, or disjoint ones."""
    if rng.random() < 0.25:
        return np.asarray(np.arange(clients) % 3 == np.arange(3)[:, None], dtype=np.float64)
    rows = (rng.random((rng.integers(3, 9), clients)) < rng.choice([0.3, 0.5, 0.7])).astype(np.float64)
    rows[rows.sum(axis=1) == 0, 0] = 1.0
    return np.asarray(rows, dtype=np.float64)


def attacked(rng: np.random.Generator, honest: FloatArray) -> FloatArray:
    """What some attacker sends instead of this update, float64[classes, inputs]."""
    kind = rng.integers(6)
    size = float(rng.choice([0.3, 1.0, 20.0]))
    if kind == 0:
        return -size * honest
    if kind == 1:
        return size * rng.normal(size=honest.shape)
    if kind == 2:
        return honest * 1e4
    if kind == 3:
        return np.zeros_like(honest)
    s, t = rng.choice(len(honest), 2, replace=False)
    flipped = honest.copy()
    flipped[[s, t]] += size * np.array([-honest[s], honest[s]])
    return flipped


def held(seed: int) -> GradedDecoding | None:
    """One federation, tested once to three times; None where it was refused."""
    rng = np.random.default_rng([11, seed])
    clients, classes = int(rng.integers(4, 12)), int(rng.choice([2, 3, 4, 6]))
    inputs = int(rng.choice([3, 12, 40]))
    prototypes = rng.normal(size=(classes, inputs)) / inputs**0.5
    labels = rng.permutation(np.arange(int(rng.integers(classes, 6 * classes))) % classes)
    images = prototypes[labels] + float(rng.choice([0.0, 0.1])) * rng.normal(size=(len(labels), inputs))
    odd = rng.choice(["none", "zeros", "unscored"], p=[0.5, 0.3, 0.2])
    hole = int(rng.integers(len(labels)))

    def logits(parameters: Parameters) -> FloatArray:
        scores = np.asarray(images @ np.asarray(parameters["weight"], dtype=np.float64).T)
        if odd == "zeros":  # probabilities rounded to 0
            scores = np.where(scores < scores.max(axis=1, keepdims=True) - 2.0, -np.inf, scores)
        if odd == "unscored":
            scores[hole, 0] = np.nan
        return np.asarray(scores, dtype=np.float64)

    validation = Validation(
        logits=logits,
        labels=labels.astype(np.int64),
        inputs=(lambda parameters: images) if rng.random() < 0.7 else None,
    )
    samples = rng.integers(1, 21, size=clients).astype(np.float64) * 10
    attackers = rng.permutation(clients)[: rng.integers(0, (clients + 1) // 2)]
    noise = float(rng.choice([0.0, 1e-9, 0.05, 1.0]))
    names = tuple(f"c{j}" for j in range(clients))
    screen, decode = ScreenSettings(features=FEATURES[seed % 3]), DecodeSettings(on_suspicious=POLICIES[seed % 3])
    start, found = np.zeros((classes, inputs)), None
    evidence: list[SetEvidence] = []
    for _ in range(int(rng.integers(1, 4))):
        updates = prototypes + noise * rng.normal(size=(clients, classes, inputs))
        for client in attackers:
            updates[client] = attacked(rng, updates[client])
        rows = groups(rng, clients) * samples
        means = [None if rng.random() < 0.05 else {"weight": np.tensordot(r, updates, axes=1) / r.sum()} for r in rows]
        grouping = Grouping(design=from_matrix((rows > 0).astype(np.uint8)), clients=names)
        test = GroupMeans(start={"weight": start}, updates=means, rows=rows, samples=samples)
        try:
            said = measured(test, grouping, validation, screen, decode, evidence)
        except FedGTError:  # too few features or classes, said before anybody is accused
            return None
        for last in (False, True):
            assert len(exclude(grouping, said.finding, decode, last=last).verdicts) == clients
        assert isinstance(said.decoding, GradedDecoding)
        found = said.decoding
        evidence += [] if said.evidence is None else [said.evidence]
    return found


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, PARTS))])
def test_every_odd_federation_ends_with_an_answer_or_a_refusal(part: int) -> None:
    answers = 0
    for seed in range(part * RUNS // PARTS, (part + 1) * RUNS // PARTS):
        found = held(seed)
        if found is None:
            continue
        answers += 1
        known = found.posterior[~np.isnan(found.posterior)]
        assert ((known >= 0.0) & (known <= 1.0)).all(), seed
        assert not (found.flagged & found.suspicious).any(), seed
        if found.more:  # then nobody is cleared
            assert (known >= 0.019).all(), seed
    assert answers > RUNS // PARTS // 3
