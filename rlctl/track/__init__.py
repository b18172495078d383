"""Where a run is recorded: the section `track` of a recipe."""

from __future__ import annotations

from pydantic import Field, field_validator

from rlctl.spec import Spec


class RolloutsSpec(Spec):
    """How much model text is written down."""

    every: int = Field(1, ge=1)  # steps
    rows: int = Field(64, ge=0)  # a step


class TrackSpec(Spec):
    """`mlflow`: auto (a sqlite store in output_dir, or $MLFLOW_TRACKING_URI), off, or a tracking URI."""

    mlflow: str = "auto"
    parent: str | None = None  # id of the MLflow run that this one belongs to, such as its sweep's
    rollouts: RolloutsSpec = RolloutsSpec()

    @field_validator("mlflow")
    @classmethod
    def _is_destination(cls, value: str) -> str:
        if value in ("auto", "off", "databricks") or "://" in value:
            return value
        raise ValueError(
            "give auto, off or a tracking URI such as http://host:5000 or sqlite:///runs/mlflow.db"
        )
