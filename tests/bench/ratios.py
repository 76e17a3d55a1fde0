"""What the parts of `serve_gpu` found, held against each other."""

from typing import Any


def compared(parts: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Return the ratios of Darkroom's best rate to all others, and the share of equal labels."""
    ratios: dict[str, float] = {}
    darkroom, engines = parts.get("darkroom", {}), parts.get("engines", {})
    labels = darkroom.pop("labels", None)
    ours = {s: darkroom[s]["raw"]["best"]["images_per_second"] for s in _sets(darkroom)}
    for images, rate in ours.items():
        for name in (f"hardware_{images}", "preprocess", "model"):
            if alone := engines.get(name):
                ratios[f"{images}_by_{name.removesuffix('_' + images)}"] = round(rate / alone, 3)
        if alone := engines.get(f"hardware_{images}"):
            multipart = darkroom[images]["multipart"]["best"]["images_per_second"]
            ratios[f"{images}_multipart_by_hardware"] = round(multipart / alone, 3)
    for form, found in parts.get("filtered", {}).items():
        encode = "encode_by_gpu" if form.endswith("_by_gpu") else "encode"
        limit = min(engines.get(name, 0.0) for name in ("hardware_subsampled", encode))
        if limit and "best" in str(found):
            rate = found["best"]["images_per_second"]
            ratios[f"{form}_by_decode_and_encode"] = round(rate / limit, 3)
    peers = {n: p for n, p in parts.items() if n.startswith("naive") and "best" in p}
    peers |= {f"litserve {k}": v for k, v in parts.get("litserve", {}).items() if "best" in str(v)}
    for name, peer in peers.items():
        theirs = peer.pop("labels", None)
        if "subsampled" in ours:
            ratios[f"by_{name}"] = round(ours["subsampled"] / peer["best"]["images_per_second"], 2)
        if labels and theirs:
            same = sum(a == b for a, b in zip(labels, theirs, strict=True))
            ratios[f"labels_as_{name}"] = round(same / len(labels), 3)
    return ratios


def _sets(darkroom: dict[str, Any]) -> list[str]:
    return [name for name in ("subsampled", "mixed") if "raw" in darkroom.get(name, {})]
