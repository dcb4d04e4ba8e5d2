"""From a specification to a federation in this process: data, clients, attackers, faults.

What only the simulation knows (who is malicious, which attack) stays in `Simulation.malicious` and the test set; the
defence gets the `Federation`, the `Grouping` and the server's validation set.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedgt.design import AnyDesign, any_design, design_of_rows
from fedgt.engine import ClientEndpoint, LocalTransport, OnStage, TakesSums, secure_sums
from fedgt.errors import DesignError, ProtocolError, SpecError
from fedgt.experiment.attack_success import attack_success
from fedgt.experiment.attackers import attackers, failing, failing_behaviour, malicious_behaviours
from fedgt.experiment.spec import ExperimentSpec, FaultSpec
from fedgt.experiment.unmasked import UnmaskedSums
from fedgt.federation import Federation, FederationRun, Validation
from fedgt.federation.history import Accuracies, Witness
from fedgt.federation.run_folder import RunFolder
from fedgt.grouping import Grouping, assign
from fedgt.planning import default_design, design_with_coefficients
from fedgt.record.result import Heading, Truth
from fedgt.screen import balanced_accuracy, top1_accuracy
from fedgt.train import (
    Behaviour,
    Cohort,
    ImageData,
    LocalTraining,
    LogisticRegression,
    Partition,
    load,
    partition_centres,
    partition_dirichlet,
    partition_iid,
    partition_single_class,
)
from fedgt.train.model import Model
from fedgt.types import IntArray, Parameters

_SEATS, _PARTITION, _MALICIOUS, _POISON, _INITIAL = range(5)  # independent streams of one seed
_BROKEN = 6  # the run itself draws further rows from stream 5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Simulation:
    """A federation with everything the experimenter knows.

    Attributes:
        run: What the server does.
        validation: The server's validation set.
        model: What is trained.
        initial: The first global model.
        clients: Client ids, by client number.
        malicious: The ids of the malicious clients: never given to the defence.
        faulty: The ids of honest clients whose data or software is broken: never given to the defence either.
        shape: (rows, columns) of an image, its channels one below the other.
        test_images: float32[samples, features] (uint8 for image networks), for the accuracies of the report.
        test_labels: int64[samples].
        begin_round: Tells the simulated clients which round begins and who takes part.
        cohort: The simulated clients and their data.
    """

    run: FederationRun
    validation: Validation
    model: Model
    initial: Parameters
    clients: tuple[str, ...]
    malicious: frozenset[str]
    faulty: frozenset[str]
    shape: tuple[int, int]
    test_images: np.ndarray[tuple[int, ...], np.dtype[Any]]
    test_labels: IntArray
    begin_round: Callable[[int, Collection[str]], None]
    cohort: Cohort

    @property
    def federation(self) -> Federation:
        """Who takes part and how sums are taken."""
        return self.run.federation

    @property
    def grouping(self) -> Grouping | None:
        """Who shares a group in the first test; None for methods without groups."""
        return self.run.grouping


def simulate(
    spec: ExperimentSpec,
    *,
    data: ImageData | None = None,
    data_dir: Path | None = None,
    masks: bool = True,
    on_stage: OnStage | None = None,
    folder: RunFolder | None = None,
    resume: bool = False,
) -> Simulation:
    """Set the federation up; nothing is trained yet.

    Args:
        spec: What to simulate.
        data: The data set, when it is loaded already.
        data_dir: Where data files are; the environment variable FEDGT_DATA if not given.
        masks: False takes the same sums without the protocol, for Monte Carlo experiments; see `unmasked`.
        on_stage: Called with (round, purpose, stage) when a stage of the secure aggregation begins.
        folder: Where the run leaves its record.
        resume: Go on with the run that the folder holds.

    Raises:
        SpecError: If the data cannot be found or the specification does not fit it.
        DesignError: If the design does not fit the number of clients.
    """
    if spec.faults and not masks:
        raise SpecError("clients that leave need the protocol: take masks = True, or a specification without faults")
    data = load(spec.data.name, data_dir) if data is None else data
    n = spec.federation.clients
    width = len(str(n - 1))
    clients = tuple(f"client-{j:0{width}d}" for j in range(n))
    split = _partition(spec, data)
    grouping = _grouping(spec, clients) if spec.method == "fedgt" or spec.attack.require_clean_group else None
    placed = attackers(spec, clients, grouping, split, data, rng=_stream(spec, _MALICIOUS))
    malicious = sorted(j for _, numbers in placed for j in numbers)
    behaviours: dict[str, Behaviour] = {}
    for kind, numbers in placed:
        behaviours |= malicious_behaviours(kind, numbers, clients, split, data, rng=_stream(spec, _POISON))
    broken = _stream(spec, _BROKEN)
    faulty = [(failure, j) for failure, numbers in failing(spec, malicious, rng=broken) for j in numbers]
    for failure, j in faulty:
        behaviours[clients[j]] = failing_behaviour(failure, j, split, data, rng=broken)
    model = _model(spec, data, data_dir)
    if spec.method == "fedgt" and spec.screen.layer != model.classification_layer:
        raise SpecError(
            f"screen.layer = {spec.screen.layer!r}: the classification layer of {spec.training.model} is "
            f"{model.classification_layer!r}"
        )
    cohort = Cohort(
        model=model,
        images=data.train_images,
        labels=data.train_labels,
        parts=dict(zip(clients, split.clients, strict=True)),
        training=LocalTraining(
            learning_rate=spec.training.learning_rate,
            batch_size=spec.training.batch_size,
            epochs=spec.training.local_epochs,
            momentum=spec.training.momentum,
            weight_decay=spec.training.weight_decay,
            focusing=spec.training.focusing,
            class_weights=spec.training.class_weights,
        ),
        seed=spec.seed,
        behaviours=behaviours,
    )
    faults = _Faults(spec.faults, clients)
    # A client refuses by itself what the ledger would refuse: a sum over fewer than the promised number.
    handlers = {
        client: faults.around(client, ClientEndpoint(client, one, minimum_group_size=spec.privacy).handle)
        for client, one in cohort.clients.items()
    }

    def begin_round(number: int, taking_part: Collection[str]) -> None:
        faults.round = number
        cohort.expect(taking_part, round=number)

    validation_images = data.train_images[split.validation]
    validation = Validation(
        logits=lambda parameters: model.logits(parameters, validation_images),
        labels=data.train_labels[split.validation],
        inputs=lambda parameters: model.inputs(parameters, validation_images),
    )
    truth: dict[str, Truth] = dict.fromkeys(clients, "benign")
    truth.update({clients[j]: "faulty" for _, j in faulty})
    truth.update({clients[j]: "malicious" for j in malicious})
    take_sums: TakesSums = secure_sums if masks else UnmaskedSums(clients=cohort.clients)
    run = FederationRun(
        LocalTransport(handlers, workers=spec.secure_aggregation.workers),
        privacy=spec.privacy,
        samples={client: len(part) for client, part in zip(clients, split.clients, strict=True)},
        validation=validation if spec.method == "fedgt" else None,
        grouping=grouping if spec.method == "fedgt" else None,
        rounds=spec.federation.rounds,
        screen=spec.screen if spec.method == "fedgt" else None,
        decode=spec.decode if spec.method == "fedgt" else None,
        weighting=spec.federation.weighting,
        sums=spec.secure_aggregation,
        rfa=spec.rfa if spec.method == "rfa" else None,
        excluded=[clients[j] for j in malicious] if spec.method == "oracle" else (),
        present=faults.present,
        name=f"{spec.digest[:12]}-{spec.seed}",
        seed=spec.seed,
        take_sums=take_sums,
        on_stage=on_stage,
        folder=folder,
        resume=resume,
        witness=Witness(
            heading=Heading(method=spec.method, seed=spec.seed, spec_hash=spec.digest, rounds=spec.federation.rounds),
            truth=truth,
            accuracies=partial(_accuracies, spec, model, data),
        ),
    )
    return Simulation(
        run=run,
        validation=validation,
        model=model,
        initial=model.initial(rng=_stream(spec, _INITIAL)),
        clients=clients,
        malicious=frozenset(clients[j] for j in malicious),
        faulty=frozenset(clients[j] for _, j in faulty),
        shape=data.shape,
        test_images=data.test_images,
        test_labels=data.test_labels,
        begin_round=begin_round,
        cohort=cohort,
    )


def _accuracies(spec: ExperimentSpec, model: Model, data: ImageData, parameters: Parameters) -> Accuracies:
    predictions, labels = model.predict(parameters, data.test_images), data.test_labels
    return Accuracies(
        top1_accuracy(predictions, labels),
        balanced_accuracy(predictions, labels),
        attack_success(spec, model, data, parameters, predictions),
    )


def design_of(spec: ExperimentSpec) -> AnyDesign:
    """The design that the specification names or points to.

    Raises:
        DesignError: If it cannot be made.
        SpecError: If it is for another number of clients.
    """
    try:
        design = (
            _default(spec)
            if spec.design.matrix is None and spec.design.name == "auto"
            else any_design(spec.design.name)
            if spec.design.matrix is None
            else design_of_rows(
                spec.design.matrix,
                coefficients=spec.design.coefficients,
                name=spec.design.name,
                source="given in the specification",
            )
        )
    except DesignError as error:
        key = f"design.name = {spec.design.name!r}" if spec.design.matrix is None else "design.matrix"
        above = not spec.design.coefficients and any(one > 1 for row in spec.design.matrix or () for one in row)
        hint = "; if coefficients are meant, set design.coefficients = true" if above else ""
        raise DesignError(f"{key}: {error}{hint}") from error
    if design.clients != spec.federation.clients:
        raise SpecError(
            f"design {design.name!r} is for {design.clients} clients, federation.clients = {spec.federation.clients}; "
            "change one of them"
        )
    return design


def _default(spec: ExperimentSpec) -> AnyDesign:
    """With coefficients only for graded evidence: one bit a group has no use for them."""
    clients, sums = spec.federation.clients, spec.secure_aggregation
    share, colluders, graded = sums.largest_share, sums.colluders, spec.screen.kind == "graded"
    if graded and spec.design.coefficients:
        return design_with_coefficients(clients, privacy=spec.privacy, largest_share=share, colluders=colluders)
    return default_design(clients, graded=graded, privacy=spec.privacy, largest_share=share, colluders=colluders)


def _model(spec: ExperimentSpec, data: ImageData, data_dir: Path | None) -> Model:
    pictures = data.train_images.dtype == np.uint8
    if spec.training.model == "linear":
        if pictures:
            raise SpecError(
                f"data.name = {data.name!r} are pictures: take training.model = 'resnet18' or 'efficientnet-b0', or their "
                f"features, data.name = '{data.name}-lite0'"
            )
        return LogisticRegression(classes=data.classes, features=data.train_images.shape[1])
    if not pictures:
        raise SpecError(
            f"training.model = {spec.training.model!r} needs pictures: take data.name = 'cifar10' or 'isic2019', not "
            f"{data.name!r}"
        )
    from fedgt.train.image_network import ImageNetwork, published_weights

    return ImageNetwork(
        architecture=spec.training.model,
        classes=data.classes,
        side=data.shape[1],
        weights=published_weights(spec.training.model, data_dir) if spec.training.pretrained else None,
        device=spec.training.device,
    )


class _Faults:
    """Clients that are absent or fall silent at a stage; simulation of dropouts."""

    def __init__(self, faults: Collection[FaultSpec], clients: tuple[str, ...]) -> None:
        self.round = 0
        self._clients = clients
        self._at = {(clients[fault.client], fault.round): fault.stage for fault in faults}

    def present(self, number: int) -> tuple[str, ...]:
        return tuple(client for client in self._clients if self._at.get((client, number)) != "absent")

    def around(self, client: str, handle: Callable[[str, bytes], bytes]) -> Callable[[str, bytes], bytes]:
        order = ("keys", "shares", "masked", "unmask", "further")

        def answer(stage: str, payload: bytes) -> bytes:
            silent = self._at.get((client, self.round))
            if silent in order and order.index(stage) >= order.index(silent):
                raise ProtocolError(f"client {client} has left (simulated fault)")
            return handle(stage, payload)

        return answer


def _stream(spec: ExperimentSpec, purpose: int) -> np.random.Generator:
    return np.random.default_rng([spec.seed, purpose])


def _partition(spec: ExperimentSpec, data: ImageData) -> Partition:
    rng = _stream(spec, _PARTITION)
    if spec.data.partition == "iid":
        return partition_iid(
            samples=len(data.train_labels),
            clients=spec.federation.clients,
            validation=spec.data.validation,
            rng=rng,
        )
    if spec.data.partition == "centres":
        if data.centres is None:
            raise SpecError(
                f'data.partition = "centres", but nobody knows the centres of {data.name}; take "iid" or "dirichlet"'
            )
        return partition_centres(
            centres=data.centres, clients=spec.federation.clients, validation=spec.data.validation, rng=rng
        )
    if spec.data.partition == "single-class":
        return partition_single_class(
            labels=data.train_labels, clients=spec.federation.clients, validation=spec.data.validation, rng=rng
        )
    return partition_dirichlet(
        labels=data.train_labels,
        clients=spec.federation.clients,
        validation=spec.data.validation,
        concentration=spec.data.concentration,
        rng=rng,
    )


def _grouping(spec: ExperimentSpec, clients: tuple[str, ...]) -> Grouping:
    return assign(design_of(spec), clients, rng=_stream(spec, _SEATS))
