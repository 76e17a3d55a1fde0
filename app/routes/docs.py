"""`GET /` and `GET /docs`: the page for people."""

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from app.page import POLICY, page
from workers.filters import FILTERS

router = APIRouter(include_in_schema=False)


@router.get("/")
@router.get("/docs")
async def docs(request: Request) -> HTMLResponse:
    """Every endpoint, its options, and a form to try it."""
    shown = page(request.app.openapi(), FILTERS)
    return HTMLResponse(shown, headers={"Content-Security-Policy": POLICY})
