"""No request that the description allows, and none that it forbids, is a failure of ours."""

from __future__ import annotations

from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from wherefrom.web.app import create_app

CHECKS = (
    not_a_server_error,
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
US = {"Host": "127.0.0.1"}


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_every_address_keeps_its_promise(served: Path, mode: GenerationMode) -> None:
    # one run is served, so that no training can be started by chance
    schema = schemathesis.openapi.from_asgi(
        "/openapi.json", create_app(served / "small"), headers=US
    )
    asked = []
    for found in schema.get_all_operations():
        operation = found.ok()

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(
            max_examples=10,
            deadline=None,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def keeps_its_promise(case: schemathesis.Case) -> None:
            case.call_and_validate(checks=CHECKS, headers=US)

        if mode is GenerationMode.POSITIVE or operation.query or operation.body:
            keeps_its_promise()
            asked.append(operation.path)
    assert len(asked) >= 8
