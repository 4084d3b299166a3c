"""Small data sets in the formats that the worker reads, made by the tests."""

import gzip
import pathlib
import random
import struct

import numpy as np


def images(count, seed):
    """Ten classes: noise with a bright bar whose place tells the class, but for one label in ten, which is
    drawn at random: no network gets them all right. uint8 [count, 28, 28] and [count]."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 10, count).astype(np.uint8)
    pixels = rng.integers(0, 60, (count, 28, 28)).astype(np.uint8)
    for image, label in zip(pixels, labels):
        image[2 * label + 3 : 2 * label + 6, 4:24] = 230
    wrong = rng.random(count) < 0.1
    labels[wrong] = rng.integers(0, 10, count).astype(np.uint8)[wrong]
    return pixels, labels


def write_idx(folder, train=600, test=200):
    """Fashion-MNIST's four files."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for prefix, count, seed in (("train", train, 1), ("t10k", test, 2)):
        pixels, labels = images(count, seed)
        with gzip.open(folder / f"{prefix}-images-idx3-ubyte.gz", "wb", compresslevel=1) as file:
            file.write(struct.pack(">IIII", 2051, count, 28, 28) + pixels.tobytes())
        with gzip.open(folder / f"{prefix}-labels-idx1-ubyte.gz", "wb", compresslevel=1) as file:
            file.write(struct.pack(">II", 2049, count) + labels.tobytes())
    return folder


def write_cifar(where):
    """Random images in CIFAR-10's format: how fast a network trains does not depend on what it sees."""
    where.mkdir()
    chance = random.Random(1)
    for name in [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]:
        records = (bytes([i % 10]) + chance.randbytes(3072) for i in range(2000))
        (where / name).write_bytes(b"".join(records))
