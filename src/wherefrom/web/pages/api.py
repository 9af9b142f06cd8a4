"""The list of addresses for programs: a page over the OpenAPI description."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel

from wherefrom.web.replies import Record, twin

router = APIRouter(tags=["api"])


class ApiPage(BaseModel):
    """Every address that gives JSON."""

    addresses: list[dict[str, Any]]


@twin(router, "/api", "api.html", ApiPage)
async def api(request: Request) -> Record:
    """What a program can ask for; /openapi.json says the same in full."""
    addresses = []
    for path, methods in request.app.openapi()["paths"].items():
        for method, operation in methods.items():
            addresses.append(
                {
                    "path": path,
                    "method": method.upper(),
                    "summary": operation.get("summary", ""),
                    "parameters": [
                        {
                            "name": each["name"],
                            "about": each.get("description", ""),
                            "required": each.get("required", False),
                        }
                        for each in operation.get("parameters", [])
                    ],
                }
            )
    return {"addresses": addresses}
