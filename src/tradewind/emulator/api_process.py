"""The fault API as a process."""

import socket

from tradewind.emulator.plan import EmulationPlan


def run_api(plan: EmulationPlan, control: socket.socket) -> int:
    """Runs until the other end of `control` closes."""
    while control.recv(1 << 20):
        pass
    return 0
