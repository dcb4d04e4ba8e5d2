"""The site's half: a ClientApp whose handlers answer the stages; every message may find a fresh process.

Between two messages `context.state` holds a suspended `ClientEndpoint` and nothing else: keys and shares of an open session
or of the coming one, the global model until it is trained, pinned terms. Never data, and never a local model.
"""

from collections.abc import Callable
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedgt.engine.endpoint import ClientEndpoint, TrainedModel
from fedgt.engine.site_setup import SITE_FILES, Site, endpoint_of, inputs_of, read_site
from fedgt.errors import SpecError
from fedgt.flower.records import MESSAGE_TYPES, frame_of, frame_record, framed
from fedgt.secagg.frames import Sender, require_authentic
from fedgt.types import Parameters

TrainFunction = Callable[[Parameters, int, Context], TrainedModel]
"""(global parameters, round, context) -> the trained model and its number of samples."""

_STATE = "fedgt-suspended"


def site_of(context: Context) -> Site:
    """The site that the node's own configuration describes (`flower-supernode --node-config`).

    `fedgt-client` is the name; `fedgt-key` and `fedgt-registry` are paths of files that `fedgt keygen` made; `fedgt-policy`,
    `fedgt-terms` (signed, see `fedgt terms`) and `fedgt-journal` are paths. In a simulation, where nodes have no
    configuration, partition 3 is `client-3`.

    Raises:
        SpecError: If there is no name, only one of key and registry, or a file cannot be read.

    Examples:
        >>> from flwr.app import Context, RecordDict
        >>> from fedgt.flower import site_of
        >>> node = {"fedgt-client": "ada"}
        >>> site_of(Context(run_id=1, node_id=1, node_config=node, state=RecordDict(), run_config={})).client
        'ada'
    """
    config = context.node_config
    name = config.get("fedgt-client")
    if name is None and "partition-id" in config:
        name = f"client-{config['partition-id']}"
    if name is None:
        raise SpecError("this node has no name: flower-supernode --node-config 'fedgt-client=\"hospital-north\"'")
    paths = {what: config.get(f"fedgt-{what}") for what in SITE_FILES}
    files = {what: None if path is None else Path(str(path)) for what, path in paths.items()}
    return read_site(str(name), files, prefix="fedgt-")


def client_app(
    train: TrainFunction, *, site: Callable[[Context], Site] = site_of, minimum_group_size: int = 2
) -> ClientApp:
    """A ClientApp for fedgt alone; `register` adds fedgt to an app that does other things too.

    Args:
        train: Trains locally; called once per round, in the process that answers stage "masked".
        site: Who this node is.
        minimum_group_size: Refuse sums over fewer clients than this; the policy's own limit holds as well.

    Examples:
        >>> import numpy as np
        >>> from fedgt import FederationRun, TrainedModel
        >>> from fedgt.flower import FlowerTransport, InProcessGrid, client_app
        >>> def train(parameters, round, context):
        ...     return TrainedModel(parameters={"weight": parameters["weight"] + 1.0}, samples=10)
        >>> names = ["ada", "bob", "cleo", "dan"]
        >>> grid = InProcessGrid(client_app(train), {node: {"fedgt-client": name} for node, name in enumerate(names, 1)})
        >>> transport = FlowerTransport(grid, names, poll=0.01)
        >>> run = FederationRun(transport, privacy=4, samples=dict.fromkeys(names, 10), rounds=1)
        >>> [step.parameters["weight"].round(3).tolist() for step in run.rounds({"weight": np.zeros(2)})]
        [[1.0, 1.0]]
    """
    app = ClientApp()
    register(app, train, site=site, minimum_group_size=minimum_group_size)
    return app


def register(
    app: ClientApp, train: TrainFunction, *, site: Callable[[Context], Site] = site_of, minimum_group_size: int = 2
) -> None:
    """Add the handlers of all stages to an app; arguments as for `client_app`.

    Examples:
        >>> from flwr.clientapp import ClientApp
        >>> from fedgt import TrainedModel
        >>> from fedgt.flower import register
        >>> app = ClientApp()  # one of yours, with other handlers
        >>> register(app, lambda parameters, round, context: TrainedModel(parameters=dict(parameters), samples=10))
        >>> isinstance(app, ClientApp)
        True
    """

    def stage(message: Message, context: Context, name: str) -> Message:
        me = site(context)
        me.require_memory("fedgt-journal")
        frame = frame_of(message.content)
        if me.credentials is not None:
            # Before the state is taken out of its place, which leaves a file beside the journal: anybody can send junk.
            require_authentic(frame, sender=Sender(name="the server", public=me.credentials.registry.server))
        endpoint = endpoint_of(
            me,
            lambda parameters, round: train(parameters, round, context),
            minimum_group_size=minimum_group_size,
            inputs=inputs_of(context.run_config),
            log="the log of its SuperNode",
        )
        _take_state(context, endpoint)
        try:
            reply = endpoint.handle(name, frame)
        finally:
            _keep_state(context, endpoint)
        return Message(frame_record(reply), reply_to=message)

    def handler(name: str) -> Callable[[Message, Context], Message]:
        return lambda message, context: stage(message, context, name)

    for name, message_type in MESSAGE_TYPES.items():
        category, _, action = message_type.partition(".")
        decorate = app.train(action) if category == "train" else app.query(action)
        decorate(handler(name))


def _take_state(context: Context, endpoint: ClientEndpoint) -> None:
    """Move the suspended endpoint out of the context: whatever happens next, it is not there to be used again."""
    if _STATE in context.state:
        suspended = frame_of(context.state, record=_STATE)
        del context.state[_STATE]
        endpoint.resume(suspended)


def _keep_state(context: Context, endpoint: ClientEndpoint) -> None:
    context.state[_STATE] = framed(endpoint.suspend())
