"""Shared fixtures: where the real data sets are, and hypothesis profiles."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("fedgt", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("fedgt")


@pytest.fixture(scope="session")
def mnist_dir() -> Path:
    """The folder with MNIST/raw/*-ubyte; tests that need it say so when they skip."""
    root = os.environ.get("FEDGT_DATA", "")
    if not root or not (Path(root) / "MNIST" / "raw").is_dir():
        pytest.skip("needs MNIST: set FEDGT_DATA to a folder with MNIST/raw/*-ubyte (the torchvision layout)")
    return Path(root)
