"""The errors users meet.

Every message says what was wrong, the value, why it matters for privacy, and what to do.
Children of ``ValueError`` where Python programmers expect one.
"""

from __future__ import annotations

from typing import Any


class LastIterateError(Exception):
    """Base of every error this library raises on purpose."""


class DescriptionError(LastIterateError, ValueError):
    """A value is out of range.

    Attributes:
        field: name of the field or argument.
        value: the value that was given.

    >>> raise DescriptionError("records", 0, "an integer >= 1")
    Traceback (most recent call last):
    ...
    lastiterate.errors.DescriptionError: records must be an integer >= 1, got 0.
    """

    def __init__(self, field: str, value: object, allowed: str, reason: str = "") -> None:
        self.field = field
        self.value = value
        super().__init__(
            f"{field} must be {allowed}, got {value!r}" + (f": {reason}." if reason else ".")
        )
        self._arguments = (field, value, allowed, reason)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._arguments  # as raised, also in another process


class UnsupportedError(LastIterateError, ValueError):
    """No sound theorem covers this combination; the message names one that is covered."""


class AssumptionError(LastIterateError, ValueError):
    """An assumption that a guarantee needs is violated, or only estimated."""


class TargetError(LastIterateError, ValueError):
    """A privacy target that cannot be reached; the message says what would make it possible."""


class LifetimeBudgetError(LastIterateError, ValueError):
    """A release that would cost somebody more than was declared in advance; it must not happen."""


class CertificateError(LastIterateError, ValueError):
    """A certificate that cannot be read, or whose claims do not hold."""


class MissingExtraError(LastIterateError, ImportError):
    """What was asked needs a library that an optional extra brings.

    >>> raise MissingExtraError("Handing over a curve", "dp_accounting", "interchange")
    Traceback (most recent call last):
    ...
    lastiterate.errors.MissingExtraError: Handing over a curve needs a library that is not part of \
the core: dp_accounting is not installed. Run: pip install 'lastiterate[interchange]'
    """

    def __init__(self, what: str, library: str | None, extra: str) -> None:
        self.extra = extra
        package = (library or "one").partition(".")[0]
        super().__init__(
            f"{what} needs a library that is not part of the core: {package} is not installed. "
            f"Run: pip install 'lastiterate[{extra}]'",
            name=library,
        )
        self._arguments = (what, library, extra)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._arguments


class EstimateWarning(UserWarning):
    """A number rests on constants that were only measured: it is no guarantee."""


class PrivacyWarning(UserWarning):
    """Something costs more privacy than the numbers say, or a promise says less than it seems."""


class OperatorWarning(PrivacyWarning):
    """What was read off the records: for whoever runs this, not for what is handed on."""
