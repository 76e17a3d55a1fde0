"""The first use of the CUDA driver by a process."""


def make_context(device: str) -> None:
    """Make torch's context on a device, which its first use would make; raises RuntimeError."""
    import torch

    torch.zeros(1, device=device)
