"""Do the sections on picking and residency make sense?"""

import re
from collections.abc import Iterator

from tradewind.config.errors import Problem
from tradewind.config.schema import GatewayConfig, GridConfig
from tradewind.core.pick.cost import CostModel
from tradewind.core.pick.policies import policy_named
from tradewind.core.pick.policies.own import policy_file
from tradewind.core.pick.settings import PickSettings

_HEADER = re.compile(r"[a-z0-9!#$%&'*+.^|~-]{1,64}")  # no underscore: Envoy drops such headers
INTERNAL_PREFIXES = ("x-tw-", "x-envoy-")  # a client's headers of these names are removed at the edge
_RULE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,62}")  # part of a cluster's name
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
MAX_BODY_BYTES = 64 * 2**20  # of a body that a picker may be shown
MIN_CAPTURE_BYTES, MAX_CAPTURE_BYTES = 2**20, 2**34
MAX_RESIDENCY_RULES = 64  # each makes a route and a cluster of every pool


def pick_problems(grid: GridConfig, *, sites: list[str]) -> Iterator[Problem]:
    """Every problem of `pick` and `residency`. `sites`: the sites that the file knows."""
    for index, gateway in enumerate(grid.gateways):
        at = f"$.gateways[{index}]"
        yield from _pick(at, gateway)
        yield from _policy(at, gateway.pick.policy, files=grid.allow_policy_files)
        yield from _epp(at, gateway)
        yield from _residency(at, gateway, sites)


def _pick(at: str, gateway: GatewayConfig) -> Iterator[Problem]:
    if gateway.routing == "pick" and gateway.baseline:
        what = f"baseline {gateway.baseline!r} turns scoring off, and routing: pick needs its weights to fall back on"
        write = "routing: weights, or a baseline in pick.policy"
        yield Problem(where=f"{at}.baseline", what=what, write=write)
    if gateway.pick.max_body_bytes > MAX_BODY_BYTES:
        what = f"{gateway.pick.max_body_bytes} is more than a picker takes"
        yield Problem(where=f"{at}.pick.max_body_bytes", what=what, write=f"at most {MAX_BODY_BYTES}")
    if gateway.pick.session_header and not reaches_gateway(gateway.pick.session_header):
        yield no_header(f"{at}.pick.session_header", gateway.pick.session_header)
    if gateway.pick.explain_key_env and not _VARIABLE.fullmatch(gateway.pick.explain_key_env):
        what = "this is not the name of an environment variable"  # perhaps the key itself: it is not repeated
        write = "the variable that holds the key, e.g. TRADEWIND_EXPLAIN_KEY"
        yield Problem(where=f"{at}.pick.explain_key_env", what=what, write=write)
    if gateway.pick.capture and not MIN_CAPTURE_BYTES <= gateway.pick.capture_max_bytes <= MAX_CAPTURE_BYTES:
        what = f"{gateway.pick.capture_max_bytes} is no size for a capture"
        write = f"{MIN_CAPTURE_BYTES} to {MAX_CAPTURE_BYTES}"
        yield Problem(where=f"{at}.pick.capture_max_bytes", what=what, write=write)


def _policy(at: str, name: str, *, files: bool) -> Iterator[Problem]:
    settings = PickSettings()
    try:
        if policy_file(name) is not None:
            if not files:
                what = f"{name!r} is a file of Python, and this grid runs none"
                yield Problem(where=f"{at}.pick.policy", what=what, write="allow_policy_files: true beside `grid:`")
            return
        policy_named(name, settings, CostModel(settings.cost))
    except ValueError as error:
        what, _, known = str(error).partition("; known: ")
        write = f"one of {known}" if known else "least_request:2, least_request:N, gorgo:.5/.1 or file.py:Name"
        yield Problem(where=f"{at}.pick.policy", what=what, write=write)


def _epp(at: str, gateway: GatewayConfig) -> Iterator[Problem]:
    epp = gateway.epp
    if epp.listen and gateway.routing != "pick":
        what = "an endpoint picker has nothing to say without a picker"
        yield Problem(where=f"{at}.epp.listen", what=what, write="routing: pick in the same gateway")
    if bool(epp.tls_certificate) != bool(epp.tls_key):
        what = "a certificate and its key come together"
        yield Problem(where=f"{at}.epp", what=what, write="both tls_certificate and tls_key, or neither")
    if epp.tls_clients and not epp.tls_certificate:
        what = "proxies are only asked for certificates when traffic is encrypted"
        yield Problem(where=f"{at}.epp.tls_clients", what=what, write="tls_certificate and tls_key too")


def _residency(at: str, gateway: GatewayConfig, sites: list[str]) -> Iterator[Problem]:
    headers = sorted({rule.header.lower() for rule in gateway.residency})
    if len(headers) > 1:
        what = f"rules look at {', '.join(headers)}, and a request with two of them would follow one rule only"
        yield Problem(where=f"{at}.residency", what=what, write="the same header in every rule of a gateway")
    if len(gateway.residency) > MAX_RESIDENCY_RULES:
        what = f"{len(gateway.residency)} rules"
        yield Problem(where=f"{at}.residency", what=what, write=f"at most {MAX_RESIDENCY_RULES} rules")
    names = [rule.name for rule in gateway.residency]
    matches = [(rule.header.lower(), rule.value) for rule in gateway.residency]
    for number, rule in enumerate(gateway.residency):
        where = f"{at}.residency[{number}]"
        if not _RULE_NAME.fullmatch(rule.name) or rule.name in names[:number]:
            what = f"{rule.name!r} is not a name of its own"
            yield Problem(where=f"{where}.name", what=what, write="letters, digits, '.' and '-', each name once")
        if not reaches_gateway(rule.header):
            yield no_header(f"{where}.header", rule.header)
        if not rule.value or matches[number] in matches[:number]:
            what = f"value {rule.value!r} is empty or has a rule already"
            yield Problem(where=f"{where}.value", what=what, write="the exact text of the header, each once")
        if not rule.sites:
            yield Problem(where=f"{where}.sites", what="no site is allowed", write="at least one site")
        for place, site in enumerate(rule.sites):
            if site not in sites:
                what = f"there is no site {site!r}"
                yield Problem(where=f"{where}.sites[{place}]", what=what, write=f"one of {', '.join(sites[:8])}")


def reaches_gateway(name: str) -> bool:
    """Whether a client's header of this name is seen."""
    return bool(_HEADER.fullmatch(name.lower())) and not name.lower().startswith(INTERNAL_PREFIXES)


def no_header(where: str, name: str) -> Problem:
    """For a header that no gateway would see."""
    what = f"{name!r} is not a header that reaches the gateway"
    return Problem(where=where, what=what, write="letters, digits and '-', not beginning with x-tw- or x-envoy-")
