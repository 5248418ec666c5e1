"""Requests in flight by decision: booked once, released exactly once, by outcome or at the end of the lease."""

from tradewind.core.pick.work import Booking, Phase, Work


class Ledger:
    """All bookings of one picker, oldest first. Bounded: at `most` the oldest gives way, counted as expired."""

    def __init__(self, *, lease_s: float, most: int, floor: float) -> None:
        self._lease_s = lease_s
        self._most = most
        self._floor = floor
        self._bookings: dict[str, Booking] = {}
        self._unseen = 0  # bookings whose first token nobody will see
        self.released = 0
        self.expired = 0
        self.unknown = 0  # first tokens and outcomes of decisions that are not booked (any more)

    def __len__(self) -> int:
        return len(self._bookings)

    @property
    def has_unseen(self) -> bool:
        """Whether any request in flight goes by its predicted first token."""
        return self._unseen > 0

    def get(self, decision_id: str) -> Booking | None:
        """The booking, while it is open."""
        return self._bookings.get(decision_id)

    def book(self, booking: Booking, work: Work, now_s: float) -> None:
        """Counts the work at once."""
        if len(self._bookings) >= self._most:
            self._expire(next(iter(self._bookings.values())), now_s)
        work.dispatch(booking, now_s, floor=self._floor)
        self._bookings[booking.decision_id] = booking
        self._unseen += not booking.stream

    def first_token(self, decision_id: str, at_s: float) -> Booking | None:
        """Moves it from waiting to decoding; the booking if this was its first token."""
        booking = self._bookings.get(decision_id)
        if booking is None:
            self.unknown += 1
            return None
        if booking.phase is not Phase.WAITING:
            return None
        booking.work.first_token(booking, at_s, floor=self._floor)
        return booking

    def move(self, booking: Booking, cell_id: str, work: Work, now_s: float) -> None:
        """Another cell has it than was wished for."""
        phase = booking.phase
        booking.work.release(booking, now_s, floor=self._floor)
        work.dispatch(booking, now_s, floor=self._floor)
        if phase is Phase.DECODING:
            work.first_token(booking, now_s, floor=self._floor)
        booking.cell_id, booking.moved = cell_id, True

    def release(self, decision_id: str, now_s: float) -> Booking | None:
        """The outcome is here; None for a decision that is not booked."""
        booking = self._bookings.pop(decision_id, None)
        if booking is None:
            self.unknown += 1
            return None
        booking.work.release(booking, now_s, floor=self._floor)
        self._unseen -= not booking.stream
        self.released += 1
        return booking

    def pass_unseen(self, work: Work, now_s: float) -> None:
        """Lets requests without a visible first token go on by their prediction."""
        work.pass_unseen(now_s, floor=self._floor)

    def expire(self, now_s: float) -> int:
        """Releases what has had no outcome for a whole lease; how many."""
        over = []
        for booking in self._bookings.values():
            if now_s - booking.dispatched_s < self._lease_s:
                break
            over.append(booking)
        for booking in over:
            self._expire(booking, now_s)
        return len(over)

    def _expire(self, booking: Booking, now_s: float) -> None:
        del self._bookings[booking.decision_id]
        booking.work.release(booking, now_s, floor=self._floor)
        self._unseen -= not booking.stream
        self.expired += 1
