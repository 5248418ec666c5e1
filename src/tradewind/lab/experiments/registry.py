"""Every experiment by its name, in the order of the report. Modules are imported when they are asked for."""

from importlib import import_module

from tradewind.lab.experiments.experiment import Experiment

NAMES: dict[str, str] = {
    # name: module with an EXPERIMENT
    "validate-engine": "validate_engine.experiment",
    "validate-grid": "validate_grid.experiment",
    "validate-replay": "validate_replay.experiment",
    "pick": "pick",
    "gorgo": "gorgo.experiment",
    "skywalker": "skywalker",
    "impairment": "impairment",
    "calibration": "calibration",
    "slo-matrix": "slo_matrix.experiment",
    "scale": "scale",
    "lead-time": "lead_time",
    "clean-fleet": "clean_fleet",
    "stale": "stale",
    "homogeneous": "homogeneous",
    "heterogeneous": "heterogeneous",
    "peers": "peers",
    "network": "network",
    "failover": "failover",
    "burst": "burst",
    "mismatch": "mismatch",
    "exporter-death": "exporter_death",
}


class UnknownExperimentError(ValueError):
    """No experiment has this name; the message lists those that there are."""


def experiment_named(name: str) -> Experiment:
    """The experiment. Raises UnknownExperimentError."""
    if name not in NAMES:
        raise UnknownExperimentError(f"unknown experiment {name!r}; known: all, {', '.join(NAMES)}")
    found = import_module(f"tradewind.lab.experiments.{NAMES[name]}").EXPERIMENT
    assert isinstance(found, Experiment)
    assert found.name == name
    return found
