"""What all pages of one server share."""

from __future__ import annotations

from collections import OrderedDict, deque

from fastapi import Request

from wherefrom.web.guard import Limits
from wherefrom.web.jobs import Trainings
from wherefrom.web.models import Limiter, Models
from wherefrom.web.runs import Record, RunIndex


class Site:
    """The runs, the loaded models, the trainings, the threads, and what each visitor asked."""

    def __init__(self, index: RunIndex, limits: Limits) -> None:
        self.index = index
        self.limits = limits
        self.models = Models(index, limits)
        self.trainings = Trainings(index)
        self.computing = Limiter(limits.heavy, limits.heavy_waiting)  # checks, laws, whole reports
        self.reading = Limiter(limits.heavy, limits.heavy_waiting)  # records of runs, trainings
        self.histories: OrderedDict[str, deque[Record]] = OrderedDict()  # by visitor

    def close(self) -> list[str]:
        """Take no more work; the names of trainings that go on without this server."""
        for pool in (self.models, self.computing, self.reading):
            pool.close()
        return self.trainings.close()


def site_of(request: Request) -> Site:
    site = request.app.state.site
    assert isinstance(site, Site)
    return site
