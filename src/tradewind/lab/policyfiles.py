"""Do the policy files that a grid file allows hold what it names? Told before anything is started."""

from tradewind.config.errors import ConfigError, Problem
from tradewind.config.schema import GridConfig
from tradewind.core.pick.policies.own import policy_file
from tradewind.runtime.policyfile import PolicyFileError, own_policy


def check_policy_files(grid: GridConfig, *, source: str) -> GridConfig:
    """The grid, whose file has been checked. Loads each policy file once; raises ConfigError."""
    problems = []
    for index, gateway in enumerate(grid.gateways):
        file = policy_file(gateway.pick.policy)
        if file is None:
            continue
        try:
            own_policy(file)
        except PolicyFileError as error:
            problems.append(Problem(where=f"$.gateways[{index}].pick.policy", what=str(error)))
    if problems:
        raise ConfigError(source, problems)
    return grid
