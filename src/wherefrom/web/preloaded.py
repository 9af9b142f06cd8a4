"""What a worker process of the page has imported before its first call."""

from wherefrom.attention import checker
from wherefrom.audit import runs
from wherefrom.provenance.attribution import trace
from wherefrom.report import study_report, workbench_figures
from wherefrom.web import models, workbench

__all__ = ["checker", "models", "runs", "study_report", "trace", "workbench", "workbench_figures"]
