"""Every experiment by its name, in the order of the report. Modules are imported when they are asked for."""

from importlib import import_module

from tradewind.lab.harness.experiment import Experiment

NAMES: dict[str, str] = {  # name: module with an EXPERIMENT
    "impairment": "impairment",
    "clean-fleet": "clean_fleet",
    "slo-matrix": "slo_matrix.experiment",
    "calibration": "calibration",
    "homogeneous": "homogeneous",
    "heterogeneous": "heterogeneous",
    "lead-time": "lead_time",
    "failover": "failover",
    "burst": "burst",
    "mismatch": "mismatch",
    "exporter-death": "exporter_death",
    "network": "network",
    "pick": "pick",
    "several-gateways": "several_gateways",
    "gorgo": "gorgo.experiment",
    "rates": "rates",
    "skywalker": "skywalker",
    "stale": "stale",
    "scale": "scale",
    "peers": "peers",
    "tuner-aa": "tuner_aa",
    "tuner-change": "tuner_change",
    "tuner-windows": "tuner_windows",
    "tuner-trap": "tuner_trap",
    "tuner-prior": "tuner_prior.experiment",
    "validate-engine": "validate_engine.experiment",
    "validate-grid": "validate_grid.experiment",
    "validate-replay": "validate_replay.experiment",
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
