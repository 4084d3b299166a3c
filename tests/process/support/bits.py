"""Exported parameters and optimizer state, compared bit by bit."""


def assert_same_bits(got, expected, what):
    """Of two that `exported` has read: byte for byte, and otherwise which tensors differ, and by how much."""
    if got == expected:
        return
    # Here, since it takes a second, and what is compared is mostly the same.
    import safetensors.torch
    import torch

    differences = []
    for one, other in zip(got, expected, strict=True):
        one, other = safetensors.torch.load(one), safetensors.torch.load(other)
        for name in sorted(one.keys() | other.keys()):
            if name not in one or name not in other:
                differences.append(f"{name} is in one only")
            elif not torch.equal(one[name], other[name]):
                far = (one[name].double() - other[name].double()).abs()
                differences.append(f"{name}: {int((far > 0).sum())} of {far.numel()} elements, up to {far.max():.3g}")
    raise AssertionError(f"{what}: other bits: {'; '.join(differences) or 'of the same tensors'}")
