"""Flower's server-side optimisers: what becomes of the average update that the secure sum gives."""

from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, Metadata, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAdagrad, FedAdam, FedYogi

from fedgt.errors import SpecError
from fedgt.federation.run import NextModel
from fedgt.types import Parameters


def adaptive(strategy: FedAdam | FedYogi | FedAdagrad) -> NextModel:
    """Flower's own adaptive strategies (Reddi et al. 2021, Adaptive federated optimization) on the secure average.

    For `FederationRun(next_model=...)`. The strategy sees one reply: the average. Its eta, betas and tau are the user's;
    counters of normalisation layers are kept. It holds moments, so take a new one per run.

    Raises:
        SpecError: If the strategy is another one: give a function (old model, mean model) -> new model instead.

    Examples:
        >>> import numpy as np
        >>> from flwr.serverapp.strategy import FedAdam
        >>> from fedgt.flower import adaptive
        >>> next_model = adaptive(FedAdam(eta=0.1))  # for `FederationRun(next_model=...)`
        >>> old, mean = {"weight": np.zeros(2)}, {"weight": np.ones(2)}
        >>> bool(next_model(old, mean)["weight"].min() > 0)
        True
    """
    if not isinstance(strategy, FedAdam | FedYogi | FedAdagrad):
        raise SpecError(f"{type(strategy).__name__} is not FedAdam, FedYogi or FedAdagrad: give a function of your own")
    rounds = 0

    def step(old: Parameters, mean: Parameters) -> Parameters:
        nonlocal rounds
        rounds += 1
        floats = [name for name, tensor in old.items() if tensor.dtype.kind == "f"]
        strategy.current_arrays = {name: old[name].astype(np.float64) for name in floats}
        average = {name: Array(mean[name].astype(np.float64)) for name in floats}
        content = RecordDict({"arrays": ArrayRecord(average), "metrics": MetricRecord({strategy.weighted_by_key: 1.0})})
        arrays, _ = strategy.aggregate_train(rounds, [_reply(content)])
        if arrays is None:
            raise SpecError(f"{type(strategy).__name__} made no model of the average")
        return {name: arrays[name].numpy().astype(v.dtype) if name in arrays else v for name, v in old.items()}

    return step


def _reply(content: RecordDict) -> Message:
    metadata: Any = Metadata(
        run_id=0,
        message_id="",
        src_node_id=0,
        dst_node_id=0,
        reply_to_message_id="",
        group_id="",
        created_at=0.0,
        ttl=1.0,
        message_type="train",
    )
    return Message(content, metadata=metadata)  # type: ignore[call-overload,no-any-return]
