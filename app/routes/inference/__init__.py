"""The Open Inference Protocol, version 2, at `/v2`: what KServe's and Triton's clients speak.

Start reading in `infer.py`.
May import what `app/routes` may.
"""

from fastapi import APIRouter

from app.routes.inference import infer, models

router = APIRouter()
for _part in (infer, models):
    router.include_router(_part.router)
