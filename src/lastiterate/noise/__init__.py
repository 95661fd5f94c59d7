"""Where randomness comes from.

Noise is what protects records, and hidden batches must stay hidden, so both are drawn from a
cryptographically secure source unless a reproducible experiment is asked for.
"""

from lastiterate.noise.secure import SecureSource
from lastiterate.noise.seeded import SeededSource
from lastiterate.noise.side_by_side import SideBySide
from lastiterate.noise.source import Source, source, unpredictable

__all__ = ["SecureSource", "SeededSource", "SideBySide", "Source", "source", "unpredictable"]
