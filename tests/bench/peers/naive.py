"""FastAPI, Pillow and torch, one image a request and no batches: the service most people write.

BENCH_WEIGHTS names the weights file. Run: uvicorn tests.bench.peers.naive:app --workers 8
"""

import os
from typing import Annotated

import torch
from fastapi import Body, FastAPI

from tests.bench.peers.classifier import Classifier, crop

app = FastAPI()
classifier = Classifier(
    os.environ["BENCH_WEIGHTS"], "cuda" if torch.cuda.is_available() else "cpu", batch=1
)


@app.post("/classify")
def classify(image: Annotated[bytes, Body(media_type="image/jpeg")]) -> dict[str, float]:
    """Classify one image on FastAPI's thread pool."""
    ((best, score),) = classifier.labels([crop(image)])
    return {"class_id": best, "score": score}
