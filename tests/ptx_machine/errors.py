"""What can be wrong with a PTX program, as exceptions that name the place."""


class PtxError(Exception):
    """Base of every error that the machine reports; `place` is filled in where it passes."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.place = ""

    def __str__(self) -> str:
        return f"{self.message}\n  at {self.place}" if self.place else self.message


class ParseError(PtxError):
    """The text is not PTX that this machine can read."""


class UnsupportedInstruction(PtxError):
    """An instruction, modifier or operand form that the machine does not model."""


class LaunchError(PtxError):
    """Arguments, grid, cluster or shared memory do not fit the entry."""


class MachineError(PtxError):
    """The program did something undefined while it ran."""


class AccessError(MachineError):
    """Out of bounds, misaligned, or in the wrong state space."""


class UninitialisedRead(MachineError):
    """A register or a byte of shared memory was read before anything wrote it."""


class RaceError(MachineError):
    """Two accesses to shared memory are not ordered by any barrier."""


class ProxyError(RaceError):
    """The asynchronous proxy touches generically written bytes, with no proxy fence."""


class InFlightError(MachineError):
    """A register that an unfinished wgmma owns was touched, or wgmma.fence is missing."""


class BarrierError(MachineError):
    """A barrier was used against its rules (counts, phases, initialisation)."""


class DivergenceError(MachineError):
    """Lanes that must execute an instruction together cannot meet."""


class DeadlockError(MachineError):
    """Nothing can move; the message lists who waits for what."""


class TrapError(MachineError):
    """The program executed trap."""
