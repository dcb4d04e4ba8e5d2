"""The site's half: a Collab object whose one published function answers the stages, in one process for a whole job.

The endpoint lives in the memory of FLARE's process for the job, and nothing of it is written down but the journal.
"""

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nvflare.collab import collab
from nvflare.collab.api import Context

from fedgt.engine.endpoint import ClientEndpoint, TrainedModel
from fedgt.engine.site_setup import endpoint_of, inputs_of, read_site
from fedgt.errors import FedGTError
from fedgt.nvflare.local_file import program_at, read_local_file
from fedgt.types import Parameters

logger = logging.getLogger(__name__)

FRAME, REFUSED = "frame", "refused"
"""Keys of an answer: the frame, or why there is none. Nothing is raised: FLARE sends a traceback with every exception."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteContext:
    """What a train function is told besides the model and the round.

    Attributes:
        name: Of the client.
        config: Of the job, the same at all sites; a signed plan is bound to it.
        settings: The table `[settings]` of this site's `local/fedgt.toml`.

    Examples:
        >>> from fedgt.nvflare import SiteContext
        >>> SiteContext(name="ada", config={"learning-rate": 0.05}, settings={"data": "ada.npz"}).settings["data"]
        'ada.npz'
    """

    name: str
    config: Mapping[str, Any]
    settings: Mapping[str, Any]


class FlareSite:
    """The Collab object of a site; a job names it (`FlareJob`), FLARE makes it.

    Its program is `train(parameters, round, site)` of the site's `local/fedgt.toml`, which also says who the site is and
    what it allows.

    Args:
        config: Of the job: numbers and texts that training may use.

    Examples:
        >>> from fedgt.nvflare import FlareSite
        >>> FlareSite(config={"learning-rate": 0.05}).config
        {'learning-rate': 0.05}
    """

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        """Nothing is read yet. FLARE writes the attribute of this name into the job."""
        self.config = dict(config or {})
        self._busy = threading.Lock()
        self._endpoint: ClientEndpoint | None = None

    def _exchange(self, stage: str, frame: bytes, context: Context) -> dict[str, bytes | str]:
        """Answer one stage; whatever goes wrong is a refusal."""
        if context.caller != "server":
            return {REFUSED: "only the server may call"}
        if not self._busy.acquire(blocking=False):
            return {REFUSED: "still busy with an earlier message"}
        try:
            if self._endpoint is None:
                self._endpoint = self._made(context)
            return {FRAME: self._endpoint.handle(stage, frame)}
        except FedGTError as error:
            return {REFUSED: str(error)}
        except Exception as error:
            logger.exception("stage %s failed", stage)
            return {REFUSED: f"failed with {type(error).__name__}; the log of its job says more"}
        finally:
            self._busy.release()

    exchange = collab.publish(_exchange)

    def _made(self, context: Context) -> ClientEndpoint:
        told = read_local_file(collab.fl_ctx, "train")
        me = read_site(told.client, told.files)
        me.require_memory("journal")
        function = program_at(told.program)
        site = SiteContext(name=told.client, config=self.config, settings=told.settings)

        def train(parameters: Parameters, round: int) -> TrainedModel:
            trained: TrainedModel = function(parameters, round, site)
            return trained

        return endpoint_of(
            me,
            train,
            inputs=inputs_of(self.config),
            log="the log of its job",
        )
