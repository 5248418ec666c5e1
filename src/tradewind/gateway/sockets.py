"""Makes the gateway's Unix sockets anew where their files have gone, as with the state folder around them."""

import asyncio
import logging

from tradewind.gateway.ads import AdsServer
from tradewind.gateway.files import pick_socket_path, prepare, socket_path
from tradewind.gateway.pick.server import PickServer
from tradewind.gateway.worker import Worker
from tradewind.runtime.log import log_event

log = logging.getLogger(__name__)

LOOK_S = 1.0


async def keep_sockets(worker: Worker, ads: AdsServer, picker: PickServer) -> None:
    """Look until cancelled. An Envoy that is connected needs no file; one that is started, or connects again, does."""
    told = ""
    while True:
        await asyncio.sleep(LOOK_S)
        try:
            await _renew(worker, ads, picker)
            told = ""
        except OSError as error:
            if str(error) != told:
                log_event(log, "socket.not_renewed", level=logging.ERROR, error=error)
            told = str(error)


async def _renew(worker: Worker, ads: AdsServer, picker: PickServer) -> None:
    config, gateway = worker.config, worker.gateway
    if not socket_path(config, gateway.id).exists():
        prepare(config, gateway)
        await ads.start_again()
        worker.ring.add("socket.renewed", None, "of ADS and the access log")
    if not pick_socket_path(config, gateway.id).exists():
        prepare(config, gateway)
        await picker.start_again()
        worker.ring.add("socket.renewed", None, "of the picker")
