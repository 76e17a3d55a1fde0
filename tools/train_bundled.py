"""Train the ResNet18 that ships with Darkroom: 10 classes of Imagenette, from scratch, in minutes.

    python tools/train_bundled.py train.tar resnet18-imagenette10.safetensors

It needs one CUDA GPU with 8 GB, and Imagenette as a tar of `train/<wnid>/<name>` photos whose
shorter side is 176 pixels. All photos are kept on the GPU as bytes, and augmentation happens there.
With `--held-out 1000`, 1000 photos are set aside and scored, which is how the recipe was chosen;
the shipped weights were trained on all of them. The score that matters is that at the *served*
preprocessing (shorter side 256, crop 224), which magnifies a photo 256/176 times. Training crops
are smaller, because random crops magnify too (Touvron et al. 2019, "Fixing the train-test
resolution discrepancy").
"""

import argparse
import copy
import io
import json
import math
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn
from torchvision.models import resnet18

SIDE = 176
RESIZE, CROP = 256, 224
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
LUMA = (0.299, 0.587, 0.114)


@dataclass(frozen=True)
class Recipe:
    """The tuned parameters of the training; sizes in pixels."""

    epochs: int = 330
    batch: int = 128
    first_size: int = 128
    size: int = 192
    smallest_area: float = 0.35
    colour: float = 0.4
    mix: float = 0.5
    sharpness: float = 0.1
    smoothing: float = 0.1
    peak_rate: float = 0.25
    warm_up: int = 5
    weight_decay: float = 1e-3
    average: float = 0.999
    seed: int = 0


@dataclass(frozen=True)
class Photos:
    """Bytes (n, 3, SIDE, SIDE) and class numbers (n,), on the GPU; classes in wnid order."""

    pixels: Tensor
    classes: Tensor

    def __getitem__(self, which: Tensor) -> "Photos":
        return Photos(self.pixels[which], self.classes[which])


def read(path: Path) -> tuple[Photos, list[str]]:
    """Return all photos of a tar, and the wnids."""
    with tarfile.open(path) as tar:
        files = [(m.name, tar.extractfile(m)) for m in tar if m.isfile()]
        data = sorted((name.split("/")[-2], name, f.read()) for name, f in files if f)
    wnids = sorted({wnid for wnid, _, _ in data})

    def decode(file: bytes) -> np.ndarray:
        image = Image.open(io.BytesIO(file)).convert("RGB")
        return np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BILINEAR))

    with ThreadPoolExecutor() as pool:
        pixels = np.stack(list(pool.map(decode, (file for _, _, file in data))))
    classes = torch.tensor([wnids.index(wnid) for wnid, _, _ in data])
    return Photos(torch.from_numpy(pixels).permute(0, 3, 1, 2).cuda(), classes.cuda()), wnids


def uniform(low: float, high: float, n: int) -> Tensor:
    """Return n random numbers on the GPU."""
    return torch.empty(n, device="cuda").uniform_(low, high)


def crops(pixels: Tensor, size: int, recipe: Recipe) -> Tensor:
    """Return random resized crops, half of them mirrored: 0…1, (n, 3, size, size)."""
    n = len(pixels)
    area, aspect = uniform(recipe.smallest_area, 1, n), uniform(math.log(3 / 4), math.log(4 / 3), n)
    width = (area * aspect.exp()).sqrt().clamp(max=1)
    height = (area / aspect.exp()).sqrt().clamp(max=1)
    theta = torch.zeros(n, 2, 3, device="cuda")
    theta[:, 0, 0] = width * uniform(-1, 1, n).sign()
    theta[:, 1, 1] = height
    theta[:, 0, 2] = (1 - width) * uniform(-1, 1, n)
    theta[:, 1, 2] = (1 - height) * uniform(-1, 1, n)
    grid = F.affine_grid(theta, [n, 3, size, size], align_corners=False)
    return F.grid_sample(pixels.float() / 255, grid, padding_mode="border", align_corners=False)


def coloured(images: Tensor, strength: float) -> Tensor:
    """Change brightness, contrast and saturation at random."""
    n = len(images)
    bright, contrast, saturation = (
        uniform(1 - strength, 1 + strength, n).view(n, 1, 1, 1) for _ in range(3)
    )
    images = images * bright
    mean = images.mean((1, 2, 3), keepdim=True)
    images = mean + contrast * (images - mean)
    grey = (images * torch.tensor(LUMA, device="cuda").view(1, 3, 1, 1)).sum(1, keepdim=True)
    return (grey + saturation * (images - grey)).clamp(0, 1)


def mixed(images: Tensor, targets: Tensor, recipe: Recipe) -> tuple[Tensor, Tensor]:
    """Apply mixup or cutmix with the batch in another order, in a share `mix` of the batches."""
    if np.random.random() >= recipe.mix:
        return images, targets
    order = torch.randperm(len(images), device="cuda")
    if np.random.random() < 0.5:
        share = float(np.random.beta(0.2, 0.2))
        images = share * images + (1 - share) * images[order]
    else:
        side = images.shape[-1]
        edge = int(side * math.sqrt(1 - np.random.random()))
        top, left = np.random.randint(0, side - edge + 1, 2)
        images = images.clone()
        box = (..., slice(top, top + edge), slice(left, left + edge))
        images[box] = images[order][box]
        share = 1 - (edge / side) ** 2
    return images, share * targets + (1 - share) * targets[order]


def normalised(images: Tensor) -> Tensor:
    """Return the images channels last, normalised by ImageNet's mean and deviation."""
    mean, std = (torch.tensor(v, device="cuda").view(1, 3, 1, 1) for v in (MEAN, STD))
    return ((images - mean) / std).contiguous(memory_format=torch.channels_last)


def train(photos: Photos, recipe: Recipe, held_out: Photos | None, n_classes: int) -> nn.Module:
    """Return the moving average of the weights over a cosine schedule."""
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(recipe.seed)
    np.random.seed(recipe.seed)
    network = resnet18(num_classes=n_classes).cuda().to(memory_format=torch.channels_last)
    averaged: nn.Module = copy.deepcopy(network).eval()
    plain = [p for p in network.parameters() if p.ndim == 1]
    decayed = [p for p in network.parameters() if p.ndim > 1]
    groups: list[dict[str, Any]] = [{"params": decayed}, {"params": plain, "weight_decay": 0.0}]
    optimiser = torch.optim.SGD(
        groups, recipe.peak_rate, 0.9, weight_decay=recipe.weight_decay, nesterov=True
    )
    steps = len(photos.classes) // recipe.batch
    one_hot = F.one_hot(photos.classes, n_classes).float()
    start = time.perf_counter()
    for epoch in range(recipe.epochs):
        losses = torch.zeros((), device="cuda")
        order = torch.randperm(len(photos.classes), device="cuda")
        for step, which in enumerate(order[: steps * recipe.batch].split(recipe.batch)):
            for group in optimiser.param_groups:
                group["lr"] = rate(epoch + step / steps, recipe)
            images = coloured(
                crops(photos.pixels[which], size(epoch, recipe), recipe), recipe.colour
            )
            images, targets = mixed(images, one_hot[which], recipe)
            loss = descend(network, normalised(images), targets, optimiser, recipe)
            average(averaged, network, min(recipe.average, 1 - 10 / (10 + epoch * steps + step)))
            losses += loss
        report(epoch, recipe, losses.item() / steps, averaged, held_out, start)
    return averaged


def descend(
    network: nn.Module,
    images: Tensor,
    targets: Tensor,
    optimiser: torch.optim.Optimizer,
    recipe: Recipe,
) -> Tensor:
    """Make one step along the gradient at the worst point `sharpness` away (SAM, Foret et al.
    2021).
    """

    def gradient() -> Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            scores = network(images)
        loss = F.cross_entropy(scores.float(), targets, label_smoothing=recipe.smoothing)
        optimiser.zero_grad()
        loss.backward()
        return loss.detach()

    loss = gradient()
    if recipe.sharpness:
        weights: list[Tensor] = list(network.parameters())
        slopes = [cast(Tensor, p.grad) for p in weights]
        length = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(slopes)))
        away = torch._foreach_mul(slopes, recipe.sharpness / (length + 1e-12))
        with torch.no_grad():
            torch._foreach_add_(weights, away)
        gradient()
        with torch.no_grad():
            torch._foreach_sub_(weights, away)
    optimiser.step()
    return loss


def size(epoch: int, recipe: Recipe) -> int:
    """Return the side of the training crops, which grows in steps of 32 over three quarters.

    Small crops save much of the time.
    """
    growth = min(1.0, epoch / (0.75 * recipe.epochs)) * (recipe.size - recipe.first_size)
    return recipe.first_size + int(growth) // 32 * 32


def rate(epoch: float, recipe: Recipe) -> float:
    """Return the learning rate: a linear warm-up, then half a cosine to zero."""
    if epoch < recipe.warm_up:
        return recipe.peak_rate * epoch / recipe.warm_up
    progress = (epoch - recipe.warm_up) / (recipe.epochs - recipe.warm_up)
    return recipe.peak_rate * 0.5 * (1 + math.cos(math.pi * progress))


@torch.no_grad()
def average(averaged: nn.Module, network: nn.Module, keep: float) -> None:
    """Move the average, with the statistics of batch norms, towards the network."""
    ours, theirs = averaged.state_dict().values(), network.state_dict().values()
    floats = [(a, b) for a, b in zip(ours, theirs, strict=True) if a.is_floating_point()]
    torch._foreach_lerp_([a for a, _ in floats], [b for _, b in floats], 1 - keep)


def report(
    epoch: int,
    recipe: Recipe,
    loss: float,
    network: nn.Module,
    held_out: Photos | None,
    start: float,
) -> None:
    """Print one line of JSON for an epoch, with the held-out score every tenth."""
    line: dict[str, float] = {"epoch": epoch + 1, "loss": round(loss, 4)}
    if held_out and ((epoch + 1) % 10 == 0 or epoch + 1 == recipe.epochs):
        line["held_out"] = round(score(network, held_out), 4)
    print(json.dumps({**line, "seconds": round(time.perf_counter() - start, 1)}), flush=True)


def served(photos: Photos) -> Photos:
    """Return the photos as the service gives them to the network, by Pillow: (n, 3, CROP, CROP)."""
    margin = (RESIZE - CROP) // 2
    box = (margin, margin, margin + CROP, margin + CROP)

    def one(pixels: np.ndarray) -> np.ndarray:
        resized = Image.fromarray(pixels).resize((RESIZE, RESIZE), Image.Resampling.BILINEAR)
        return np.asarray(resized.crop(box))

    images = np.stack([one(each) for each in photos.pixels.permute(0, 2, 3, 1).cpu().numpy()])
    return Photos(torch.from_numpy(images).permute(0, 3, 1, 2).cuda(), photos.classes)


@torch.inference_mode()
def predicted(network: nn.Module, photos: Photos) -> Tensor:
    """Return the class numbers (n,) of served photos."""
    batches = photos.pixels.split(250)
    return torch.cat([network(normalised(b.float() / 255)).argmax(1) for b in batches])


def score(network: nn.Module, photos: Photos) -> float:
    """Return the share of right labels."""
    return (predicted(network, photos) == photos.classes).float().mean().item()


def test(network: nn.Module, state: dict[str, Tensor], photos: Photos) -> dict[str, float]:
    """Measure the weights on photos they were not trained on, and the effect of halving them."""
    halved = copy.deepcopy(network)
    halved.load_state_dict(state, strict=False)
    labels, halved_labels = predicted(network, photos), predicted(halved, photos)
    return {
        "photos": len(photos.classes),
        "top1": (labels == photos.classes).float().mean().item(),
        "top1_halved": (halved_labels == photos.classes).float().mean().item(),
        "labels_changed": int((labels != halved_labels).sum()),
    }


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path, help="train.tar")
    parser.add_argument("out", type=Path, help="where the weights go, .safetensors")
    parser.add_argument("--held-out", type=int, default=0, help="photos to set aside and score")
    parser.add_argument("--test", type=Path, help="val.tar, scored once at the end")
    for name, default in asdict(Recipe()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    options = vars(parser.parse_args())
    data, out, unseen = options.pop("data"), options.pop("out"), options.pop("test")
    n_held, recipe = options.pop("held_out"), Recipe(**options)
    photos, wnids = read(data)
    order = torch.randperm(len(photos.classes), generator=torch.Generator().manual_seed(1)).cuda()
    held_out = served(photos[order[:n_held]]) if n_held else None
    network = train(photos[order[n_held:]], recipe, held_out, len(wnids))
    floats = {k: v for k, v in network.state_dict().items() if v.is_floating_point()}
    state = {name: tensor.half().contiguous() for name, tensor in floats.items()}
    save_file(state, out, {"wnids": json.dumps(wnids), "recipe": json.dumps(asdict(recipe))})
    if unseen:
        print(json.dumps(test(network, state, served(read(unseen)[0]))))


if __name__ == "__main__":
    main()
