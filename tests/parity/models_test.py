"""The image networks against torchvision's, xresnet50 against fastai's definition, and the transformer against that of
PyTorch's tutorial: names, shapes, initial values; outputs, gradients and running statistics in float64. `--short`: without
ResNet-34, which has ResNet-18's blocks, and VGG19, which takes as long as all others.
"""

import json
import math
import subprocess
import sys
import time

import torch
import torchvision
from torch import nn

PROBE = sys.argv[1]
SHORT = "--short" in sys.argv
CLASSES = 10
SAMPLES = 2
TOKENS, LENGTH = 31, 12


class Residual(nn.Module):
    """fastai's ResBlock with expansion 4."""

    def __init__(self, before, width, stride):
        super().__init__()
        after = 4 * width
        self.convpath = nn.Sequential(
            conv_layer(before, width, 1), conv_layer(width, width, 3, stride), conv_layer(width, after, 1, act=False, zero=True)
        )
        around = [conv_layer(before, after, 1, act=False)] if before != after else []
        if stride != 1:
            around.insert(0, nn.AvgPool2d(stride, ceil_mode=True))
        self.idpath = nn.Sequential(*around)

    def forward(self, x):
        return torch.relu(self.convpath(x) + self.idpath(x))


def conv_layer(before, after, kernel, stride=1, act=True, zero=False):
    conv = nn.Conv2d(before, after, kernel, stride, (kernel - 1) // 2, bias=False)
    norm = nn.BatchNorm2d(after)
    nn.init.kaiming_normal_(conv.weight)
    if zero:
        nn.init.zeros_(norm.weight)
    return nn.Sequential(conv, norm, *([nn.ReLU()] if act else []))


def xresnet50(num_classes):
    stem = [conv_layer(3, 32, 3, 2), conv_layer(32, 32, 3), conv_layer(32, 64, 3)]
    layers, before = [], 64
    for width, blocks in zip((64, 128, 256, 512), (3, 4, 6, 3)):
        layer = []
        for block in range(blocks):
            layer.append(Residual(before, width, 2 if layers and block == 0 else 1))
            before = 4 * width
        layers.append(nn.Sequential(*layer))
    linear = nn.Linear(before, num_classes)
    nn.init.kaiming_normal_(linear.weight)
    nn.init.zeros_(linear.bias)
    pooled = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0)]
    return nn.Sequential(*stem, nn.MaxPool2d(3, 2, 1), *layers, *pooled, linear)


class TransformerModel(nn.Module):
    """PyTorch's tutorial "Language Modeling with nn.Transformer", samples first; its buffer of positions is left out."""

    def __init__(self, tied, skips):
        super().__init__()
        self.width, self.skips = 24, skips
        layer = nn.TransformerEncoderLayer(self.width, 4, 40, dropout=0.0, batch_first=True)
        self.encoder = nn.Embedding(TOKENS, self.width)
        self.transformer_encoder = nn.TransformerEncoder(layer, 3)
        self.decoder = nn.Linear(self.width, TOKENS)
        self.encoder.weight.data.uniform_(-0.1, 0.1)
        self.decoder.bias.data.zero_()
        self.decoder.weight.data.uniform_(-0.1, 0.1)
        if tied:
            self.decoder.weight = self.encoder.weight
        if skips:
            self.transformer_encoder.layers[2].skip_weight = nn.Parameter(torch.ones(1))

    def forward(self, x):
        position = torch.arange(LENGTH, dtype=torch.float64).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, self.width, 2, dtype=torch.float64) * (-math.log(10000.0) / self.width))
        pe = torch.zeros(LENGTH, self.width, dtype=torch.float64)
        pe[:, 0::2] = torch.sin(position * div_term)
        pe[:, 1::2] = torch.cos(position * div_term)
        mask = torch.triu(torch.full((LENGTH, LENGTH), float("-inf"), dtype=torch.float64), diagonal=1)
        h = self.encoder(x) * math.sqrt(self.width) + pe
        if not self.skips:
            return self.decoder(self.transformer_encoder(h, mask)).transpose(1, 2)
        first, second, third = self.transformer_encoder.layers
        kept = first(h, src_mask=mask)
        h = second(kept, src_mask=mask)
        return self.decoder(third(h + third.skip_weight * kept, src_mask=mask)).transpose(1, 2)


# Parameters with 1,000 classes, as published; fastai's: ResNet-50's, and 19,232 more for the stem.
MODELS = {
    "resnet18": (torchvision.models.resnet18, 11_689_512),
    "resnet34": (torchvision.models.resnet34, 21_797_672),
    "resnet50": (torchvision.models.resnet50, 25_557_032),
    "vgg19": (torchvision.models.vgg19, 143_667_240),
    "xresnet50": (xresnet50, 25_576_264),
}
TRANSFORMERS = {"transformer": (False, False), "tied_transformer": (True, False), "skip_transformer": (False, True)}


def waves(shape, begin, amplitude):
    count = torch.Size(shape).numel()
    return ((torch.arange(count, dtype=torch.float64) * 0.37 + begin).sin() * amplitude).reshape(shape)


def digest(values):
    return float((values.detach().flatten().double() * waves([values.numel()], 1, 1)).sum())


def close(got, expected, what, tolerance=1e-8):
    scale = max(1e-3, max(abs(each) for each in expected))
    worst = max(abs(a - b) for a, b in zip(got, expected, strict=True)) / scale
    assert worst <= tolerance, f"{what}: {worst:.3g} of the largest value"
    return worst


def tensors_of(model):
    return list(model.named_parameters()) + list(model.named_buffers())


def check_start(model, described, name):
    expected = tensors_of(model)
    assert [each["name"] for each in described] == [each for each, _ in expected], f"{name}: names"
    parameters = {each for each, _ in model.named_parameters()}
    for ours, (tensor_name, theirs) in zip(described, expected):
        what = f"{name} {tensor_name}"
        assert ours["shape"] == list(theirs.shape), what
        assert ours["buffer"] == (tensor_name not in parameters), what
        theirs = theirs.detach().double()
        square = float(theirs.square().mean())
        if bool((theirs == theirs.flatten()[0]).all()):  # no distribution
            assert ours["square"] == square, what
            continue
        if theirs.numel() < 1000:  # too few for a statistic
            assert 0.2 < ours["square"] / square < 5, what
            continue
        # Of n values the mean square is as near as 3 * sqrt(2 / n) of it, for a normal distribution.
        assert abs(ours["square"] / square - 1) < 8 / theirs.numel() ** 0.5, what
        assert abs(ours["mean"]) < 5 * (square / theirs.numel()) ** 0.5, what
        uniform = float(theirs.abs().max()) < 2 * square**0.5
        assert (ours["largest"] < 2 * ours["square"] ** 0.5) == uniform, what


def check_numbers(model, got, training, x):
    model.train(training)
    model.zero_grad()
    y = model(x)
    (y * waves(y.shape, 3, 1)).sum().backward()
    worst = close(got["outputs"], y.detach().flatten().tolist(), "outputs")
    worst = max(worst, close(got["gradients"], [digest(each.grad) for each in model.parameters()], "gradients"))
    return max(worst, close(got["buffers"] or [0], [digest(each) for each in model.buffers()] or [0], "buffers"))


def put_waves(model):
    with torch.no_grad():
        for begin, (_, tensor) in enumerate(tensors_of(model)):
            if not tensor.is_floating_point():
                continue
            fan_in = torch.Size(tensor.shape[1:]).numel()
            small = tensor.dim() < 2
            tensor.copy_(waves(tensor.shape, begin, 0.3) + 1 if small else waves(tensor.shape, begin, 2 / fan_in**0.5))


def check(name, model, x):
    began = time.monotonic()
    got = json.loads(subprocess.run([PROBE, name], check=True, capture_output=True, text=True).stdout)
    check_start(model, got["tensors"], name)
    model.double()
    put_waves(model)
    worst = check_numbers(model, got["evaluation"], training=False, x=x)
    if "training" in got:
        worst = max(worst, check_numbers(model, got["training"], training=True, x=x))
    print(f"{name}: {len(got['tensors'])} tensors, largest difference {worst:.2g} ({time.monotonic() - began:.0f} s)", flush=True)


torch.manual_seed(1)
torch.set_num_threads(1)
for each, (make, published) in MODELS.items():
    if SHORT and each in ("resnet34", "vgg19"):
        continue
    network = make(num_classes=CLASSES)
    last = [tensor.shape for _, tensor in network.named_parameters()][-2]
    count = sum(tensor.numel() for tensor in network.parameters())
    assert count + (last[1] + 1) * (1000 - CLASSES) == published, f"{each}: {count} parameters"
    side = 32 if each == "vgg19" else 64
    check(each, network, waves([SAMPLES, 3, side, side], 2, 1).square())
for each, (tied, skips) in TRANSFORMERS.items():
    check(each, TransformerModel(tied, skips), torch.arange(SAMPLES * LENGTH).square().remainder(TOKENS).reshape(SAMPLES, LENGTH))
