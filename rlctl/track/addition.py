"""The process that adds metrics of an earlier step to a run of MLflow: `python -m rlctl.track.addition`.

Standard input brings them; standard output says what went wrong, nothing if all is well.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from rlctl.track.courier import in_short
from rlctl.track.names import clean


def add(uri: str, run_id: str, step: int, metrics: dict[str, float]) -> None:
    """Add each metric at `step`, unless this value is there already."""
    from mlflow import MlflowClient
    from mlflow.entities import Metric

    client: Any = MlflowClient(tracking_uri=uri)
    stamp, new = int(1000 * time.time()), []
    for name, value in metrics.items():
        known = client.get_metric_history(run_id, clean(name))
        if (step, value) not in ((point.step, point.value) for point in known):
            new.append(Metric(clean(name), value, stamp, step))
    if new:
        client.log_batch(run_id, metrics=new, synchronous=True)


if __name__ == "__main__":
    try:
        add(**json.load(sys.stdin))
    except Exception as error:  # whatever it is, the evaluation stands
        print(in_short(error))
