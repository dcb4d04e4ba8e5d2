"""The example on real MNIST with torch, all sites in this process."""

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install '.[flower]'")
pytest.importorskip("torch", reason="needs torch, as the example does")

from flwr.app import Context, RecordDict

from fedgt.federation import FederationRun
from fedgt.flower import InProcessGrid

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower-mnist"

pytestmark = [pytest.mark.slow, pytest.mark.needs_mnist, pytest.mark.filterwarnings("default")]


def test_the_three_label_flippers_are_named_and_the_batch_counters_are_kept(
    mnist_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    from mnist_app import client_app, server_app, task  # type: ignore[import-not-found]

    config = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    config |= {"data": str(mnist_dir), "rounds": 1, "wait": 0.0}
    grid = InProcessGrid(client_app.app, {100 + number: {"partition-id": number} for number in range(15)}, config)
    models: list[Any] = []
    hold = FederationRun.hold

    def watched(self: FederationRun, coming: Any) -> Any:
        step = hold(self, coming)
        models.append(step.parameters)
        return step

    monkeypatch.setattr(FederationRun, "hold", watched)
    server_app.app(grid, Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=config))
    assert "excluded client-13, client-2, client-9" in capsys.readouterr().out
    before, (after,) = task.initial(1), models
    assert int(after["1.num_batches_tracked"]) == 0
    assert not np.array_equal(before["1.running_mean"], after["1.running_mean"])
