"""The picker of a gateway from its section of the grid file."""

import os
import random
from collections.abc import Callable

from tradewind.config.schema import GatewayConfig, GridConfig
from tradewind.core.pick.picker import Picker
from tradewind.core.pick.policies.weights import Pressure
from tradewind.core.pick.quarantine import QuarantineSettings
from tradewind.core.pick.settings import PickSettings
from tradewind.core.prefix.index import PrefixIndex
from tradewind.core.tokens.estimate import TokenEstimator
from tradewind.gateway.files import gateway_dir
from tradewind.gateway.pick.capture import Begin, Capture
from tradewind.gateway.pick.desk import DeskSettings, PickDesk
from tradewind.gateway.pick.late import late_settings
from tradewind.gateway.pick.own import live_policy
from tradewind.gateway.requests.parse import ParserSettings, RequestParser
from tradewind.xds.settings import settings_of


def make_desk(
    config: GridConfig, gateway: GatewayConfig, *, clock: Callable[[], float], rng: random.Random
) -> PickDesk | None:
    """None unless the gateway picks. Raises ValueError for the name of a policy that does not exist."""
    if gateway.routing != "pick":
        return None
    index = PrefixIndex()
    tokens = TokenEstimator()
    settings = PickSettings(site=gateway.site, known_models=tuple(config.models))
    parser = ParserSettings(chain_key=rng.getrandbits(64), session_header=gateway.pick.session_header.lower())
    seed = rng.getrandbits(63)
    begin = Begin(policy=gateway.pick.policy, seed=seed, settings=settings)
    capture = make_capture(config, gateway, begin)
    policy = live_policy(config, gateway)
    picker = Picker(settings, policy=policy, index=index, spare=Pressure(), tape=capture)
    picker.set_reach(gateway.reach)
    return PickDesk(
        picker,
        index=index,
        tokens=tokens,
        parser=RequestParser(tokens, parser),
        settings=desk_settings(config, gateway),
        clock=clock,
        rng=rng,
        ties=random.Random(seed),
        capture=capture,
    )


def make_capture(config: GridConfig, gateway: GatewayConfig, begin: Begin) -> Capture | None:
    """None unless one is asked for. A relative path is in the gateway's folder."""
    if not gateway.pick.capture:
        return None
    path = gateway_dir(config, gateway.id) / gateway.pick.capture
    return Capture(path, begin, max_bytes=gateway.pick.capture_max_bytes)


def desk_settings(config: GridConfig, gateway: GatewayConfig) -> DeskSettings:
    """What may change without forgetting what the picker has learned."""
    env = gateway.pick.explain_key_env
    return DeskSettings(
        gateways=max(1, len(config.gateways)),
        explain_key=os.environ.get(env, "") if env else "",
        residency=settings_of(gateway).residency,
        late=late_settings(gateway.first_token),
        quarantine=QuarantineSettings(first_s=gateway.gate.quarantine_s),
    )
