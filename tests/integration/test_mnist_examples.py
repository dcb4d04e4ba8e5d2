"""The examples on real MNIST with torch, all sites in this process: the same flippers are named on every engine."""

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install '.[flower]'")
pytest.importorskip("torch", reason="needs torch, as the examples do")

from flwr.app import Context, RecordDict

from fedgt.federation import FederationRun
from fedgt.flower import InProcessGrid

EXAMPLES = Path(__file__).parents[2] / "examples"
FLOWER = EXAMPLES / "flower-mnist"

pytestmark = [pytest.mark.slow, pytest.mark.needs_mnist, pytest.mark.filterwarnings("default")]

NAMED = "excluded client-13, client-2, client-9"


@pytest.fixture
def config(mnist_dir: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """That of the app, for one round; its package can be imported."""
    monkeypatch.syspath_prepend(str(FLOWER))
    told: dict[str, Any] = tomllib.loads((FLOWER / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    return told | {"data": str(mnist_dir), "rounds": 1, "wait": 0.0}


def test_the_three_label_flippers_are_named_and_the_batch_counters_are_kept(
    config: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from mnist_app import client_app, server_app, task  # type: ignore[import-not-found]

    grid = InProcessGrid(client_app.app, {100 + number: {"partition-id": number} for number in range(15)}, config)
    models: list[Any] = []
    hold = FederationRun.hold

    def watched(self: FederationRun, coming: Any) -> Any:
        step = hold(self, coming)
        models.append(step.parameters)
        return step

    monkeypatch.setattr(FederationRun, "hold", watched)
    server_app.app(grid, Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=config))
    assert NAMED in capsys.readouterr().out
    before, (after,) = task.initial(1), models
    assert int(after["1.num_batches_tracked"]) == 0
    assert not np.array_equal(before["1.running_mean"], after["1.running_mean"])


def test_the_same_three_are_named_on_nvidia_flare(
    config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("nvflare", reason="needs NVIDIA FLARE: pip install '.[nvflare]'")
    from flare_sites import proxies

    example = EXAMPLES / "nvflare-mnist"
    monkeypatch.syspath_prepend(str(example))
    from mnist_flare import main  # type: ignore[import-not-found]

    sites = proxies(tmp_path, config | {"clients": 15}, (example / "fedgt.toml").read_text())
    main(sites, config)
    assert NAMED in capsys.readouterr().out
