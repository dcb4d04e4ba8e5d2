"""The public interface, pinned."""

import subprocess
import sys

import pytest

import fedgt

NAMES = [
    "Client",
    "ClientEndpoint",
    "DecodeSettings",
    "Design",
    "ErrorRates",
    "FedGTError",
    "FederationRun",
    "Grouping",
    "Ledger",
    "LocalTransport",
    "Outcomes",
    "Parameters",
    "RunHaltedError",
    "ScreenSettings",
    "SumSettings",
    "TrainedModel",
    "Transport",
    "Validation",
    "__version__",
    "all_contaminated",
    "assign",
    "bch",
    "cyclic",
    "from_matrix",
    "identity",
    "max_malicious",
    "minimum_support",
    "named_design",
    "read_design",
    "secure_sums",
    "single_group",
]


def test_the_public_names_are_exactly_these() -> None:
    assert sorted(fedgt.__all__) == sorted(NAMES)
    assert dir(fedgt) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_is_there_and_documented(name: str) -> None:
    value = getattr(fedgt, name)
    if callable(value):
        assert value.__doc__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Fed'"):
        _ = fedgt.Fed


def test_importing_fedgt_imports_nothing_heavy_and_neither_torch_nor_flwr() -> None:
    code = "import fedgt, sys; print(*sorted(m for m in sys.modules if '.' not in m))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numpy", "scipy", "sklearn", "sympy", "pydantic", "cryptography", "torch", "flwr"} & set(loaded)


def test_a_whole_run_imports_neither_torch_nor_flwr() -> None:
    code = (
        "import sys\n"
        "from fedgt.experiment import make_spec, run\n"
        "spec = {'privacy': 4, 'federation': {'rounds': 2}, 'screen': {'kind': 'clusters', 'utility': 'top1'}}\n"
        "print(len(run(make_spec(spec)).rounds), 'torch' in sys.modules, 'flwr' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["2", "False", "False"], done.stderr
