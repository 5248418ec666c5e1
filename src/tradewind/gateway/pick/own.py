"""A policy of one's own in a live gateway: loaded where the grid file allows it, and held to its time."""

import signal
import threading
from types import FrameType

from tradewind.config.schema import GatewayConfig, GridConfig
from tradewind.core.pick.ask import Ask, Choice, Policy
from tradewind.core.pick.policies.own import OwnPolicyError, policy_file
from tradewind.runtime.policyfile import PolicyFileError, own_policy

REST_S = 10.0  # a policy that took too long is not asked for this time: each such wait holds up every other request


def live_policy(config: GridConfig, gateway: GatewayConfig) -> str | Policy:
    """The gateway's policy: its name, or the one of its file. What cannot be had is a policy that says so each time."""
    written = gateway.pick.policy
    file = policy_file(written)
    if file is None:
        return written
    if not config.allow_policy_files:
        return Missing(written, f"{written}: the grid file does not say allow_policy_files: true")
    try:
        return Timed(own_policy(file), limit_s=gateway.pick.timeout_s)
    except PolicyFileError as error:
        return Missing(written, str(error))


class Missing:
    """In place of a policy that could not be loaded: requests go by the weights, and the failures are counted."""

    in_seconds = False

    def __init__(self, name: str, why: str) -> None:
        self.name = name
        self._why = why

    def choose(self, ask: Ask) -> Choice:
        """Raises OwnPolicyError."""
        raise OwnPolicyError(self._why)


class TooLong(BaseException):
    """The time is up. Not an Exception: the policy's own code must not take it for one of its errors."""


class Timed:
    """Asks a policy for at most `limit_s`; one that takes longer is interrupted, and then left alone for a while.

    By an alarm signal, which reaches Python code, loops included, in the main thread only; elsewhere there is no limit.
    """

    in_seconds = False

    def __init__(self, policy: Policy, *, limit_s: float) -> None:
        self.name = policy.name
        self._policy = policy
        self._limit_s = limit_s
        self._asking = False
        self._rests_until_s = 0.0
        self._timed = threading.current_thread() is threading.main_thread()
        if self._timed:
            signal.signal(signal.SIGALRM, self._alarm)

    def choose(self, ask: Ask) -> Choice:
        """Raises OwnPolicyError."""
        if ask.now_s < self._rests_until_s:
            raise OwnPolicyError(f"{self.name} took longer than {self._limit_s:g} s and is not asked for {REST_S:g} s")
        try:
            return self._in_time(ask) if self._timed else self._policy.choose(ask)
        except TooLong:
            self._rests_until_s = ask.now_s + REST_S
            raise OwnPolicyError(f"{self.name} took longer than {self._limit_s:g} s") from None

    def _in_time(self, ask: Ask) -> Choice:
        try:
            self._asking = True
            signal.setitimer(signal.ITIMER_REAL, self._limit_s, self._limit_s)
            return self._policy.choose(ask)
        finally:
            self._asking = False
            signal.setitimer(signal.ITIMER_REAL, 0.0)

    def _alarm(self, _signal: int, _frame: FrameType | None) -> None:
        if self._asking:
            raise TooLong
