"""The MLflow run of a sweep, which its cells' runs belong to: the process `python -m rlctl.track.parent`.

Standard input brings the job; standard output says what went wrong, nothing if all is well.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rlctl.track.courier import STATUS, State, find_run, in_short, open_experiment


def gather(uri: str, experiment: str, key: str, folder: str, state: str, artifacts: Sequence[str]) -> None:
    """Find or make the run, set its status, and add files of the folder."""
    client, experiment_id = open_experiment(uri, experiment)
    run_id = find_run(client, experiment_id, key, Path(folder).name).info.run_id
    State(run_id).write(Path(folder))
    for name in artifacts:
        if (Path(folder) / name).is_file():
            client.log_artifact(run_id, str(Path(folder) / name))
    if state == "running":
        client.update_run(run_id, status="RUNNING")
    else:
        client.set_terminated(run_id, STATUS[state])


if __name__ == "__main__":
    try:
        gather(**json.load(sys.stdin))
    except Exception as error:  # whatever it is, the sweep goes on
        print(in_short(error))
