"""What is shown of an image against Pillow: decoding, crop, scaling, mirroring, of JPEGs and PNGs of all kinds."""

import pathlib
import random
import subprocess
import sys
import tempfile

import numpy
from PIL import Image, ImageOps

PROBE = sys.argv[1]
ROUNDS = 12


def noise(chance, mode, width, height):
    """Soft in parts, sharp in others."""
    coarse = numpy.frombuffer(chance.randbytes(8 * 8 * 4), numpy.uint8).reshape(8, 8, 4)
    soft = numpy.asarray(Image.fromarray(coarse, "RGBA").resize((width, height), Image.BICUBIC)).copy()
    soft[: height // 2, : width // 2] = numpy.frombuffer(chance.randbytes((height // 2) * (width // 2) * 4), numpy.uint8).reshape(
        height // 2, width // 2, 4
    )
    return Image.fromarray(soft, "RGBA").convert(mode)


KINDS = {
    "rgb.jpg": ("RGB", {"quality": 90}),
    "subsampled.jpg": ("RGB", {"quality": 75, "subsampling": "4:2:0"}),
    "progressive.jpg": ("RGB", {"quality": 80, "progressive": True}),
    "grey.jpg": ("L", {"quality": 90}),
    "rgb.png": ("RGB", {}),
    "grey.png": ("L", {}),
    "transparent.png": ("RGBA", {}),
    "grey_transparent.png": ("LA", {}),
    "palette.png": ("P", {}),
    "bits.png": ("1", {}),
}


def check(where, name, chance):
    mode, options = KINDS[name]
    worst = 0
    for _ in range(ROUNDS):
        width, height = chance.randint(20, 300), chance.randint(20, 300)
        path = where / name
        noise(chance, mode, width, height).save(path, **options)
        w, h = chance.randint(1, width), chance.randint(1, height)
        left, top = chance.randint(0, width - w), chance.randint(0, height - h)
        side, mirrored = chance.randint(1, 120), chance.random() < 0.5
        got = subprocess.run(
            [PROBE, path, *map(str, (left, top, w, h, side, int(mirrored)))], check=True, capture_output=True
        ).stdout
        got = numpy.frombuffer(got, numpy.float32).reshape(3, side, side)
        expected = Image.open(path).convert("RGB").crop((left, top, left + w, top + h)).resize((side, side), Image.BILINEAR)
        if mirrored:
            expected = ImageOps.mirror(expected)
        difference = numpy.abs(got - numpy.asarray(expected, numpy.float32).transpose(2, 0, 1)).max()
        # Pillow rounds to whole numbers after each of the two passes.
        assert difference < 1.6, f"{name} {width}x{height}, {w}x{h} at {left},{top} to {side}: {difference} of 255"
        worst = max(worst, difference)
    print(f"{name}: {ROUNDS} images, largest difference {worst:.2f} of 255", flush=True)


with tempfile.TemporaryDirectory() as folder:
    for number, each in enumerate(KINDS):
        check(pathlib.Path(folder), each, random.Random(number))
