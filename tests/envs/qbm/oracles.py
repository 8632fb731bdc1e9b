"""Recorded values: parameters are `0.5 sin(k)`, k = 1, 2, ... in the order of the operators."""

from __future__ import annotations

import dataclasses

import numpy as np


def parameters(count):
    return 0.5 * np.sin(np.arange(1, count + 1))


@dataclasses.dataclass(frozen=True)
class Oracle:
    """A restricted machine and its target, with its divergences before and after em steps."""

    visible: int
    hidden: int
    operators: str
    target: tuple[float, ...]
    log_partition: float
    kl: float
    em: tuple[float, ...]


PAIR = (0.4, 0.1, 0.1, 0.4)
RESTRICTED = {
    "XZ": Oracle(
        *(2, 1, "XZ", PAIR, 2.530797859273479, 0.4343941353637991),
        (0.163133524246, 0.105942811354, 0.050107610913, 0.014011399446, 0.002259908367),
    ),
    "Z": Oracle(
        *(2, 1, "Z", PAIR, 2.4524254005035306, 0.2991158229752072),
        (0.051625270727, 0.0130709795, 0.001650665552, 0.000132968073, 0.000008988317),
    ),
    "XZ, two hidden": Oracle(
        *(3, 2, "XZ", (0.20, 0.05, 0.05, 0.20, 0.05, 0.20, 0.20, 0.05)),
        *(4.46072337415796, 0.382610507491426),
        (0.213052894174, 0.201236358723, 0.194703426671, 0.190107279015, 0.186220589725),
    ),
}
XZ_ORDER = ("ZII", "IZI", "IIX", "IIZ", "ZIX", "ZIZ", "IZX", "IZZ")
XZ_PROBABILITIES = (0.383366704147, 0.291285763161, 0.238575037345, 0.086772495347)
XZ_MODEL = (
    *(0.349304934617, 0.243883482984, 0.005576243331, -0.214159273422),
    *(-0.358230874243, -0.203642994161, 0.264371705757, 0.292817873142),
)
XZ_E_STEP = (
    *(0, 0, 0.061965850204, -0.304595841926),
    *(-0.226095031574, 0.148614757369, 0.012788762848, 0.326378164056),
)
XZ_METRIC = (
    *(0.215917119738, 0.308315033744, 0.647622154082, 0.682640078952),
    *(0.929275049687, 1.126950180906, 1.323465246991, 1.737644916816),
)

GENERIC = ("ZII", "IZI", "IIZ", "XII", "IXI", "IIX", "ZZI", "IZZ", "XXI", "IXX", "YYI", "IYY")
GENERIC_LOG_PARTITION = 2.8491884545256685
GENERIC_PURITY = 0.329141899976302
GENERIC_ENTROPY = 1.42584469208773
GENERIC_MODEL = (
    *(0.448838923251, 0.467478665755, 0.262399495117, -0.367183746409),
    *(-0.378301859608, -0.039160616148, 0.478258798253, 0.38170993654),
    *(0.384508268116, -0.077334540771, -0.39455082456, -0.127412486008),
)
GENERIC_METRIC = (0.202047481951, 1.506189042539)
GENERIC_DIVERGENCE = 1.5399748165445337
#: The transverse-field Ising chain -(Z1 Z2 + Z2 Z3) - 0.7 sum X at inverse temperature 1.
ISING = np.array([0, 0, 0, 0.7, 0.7, 0.7, 1, 1, 0, 0, 0, 0])

PAIR_TERMS = ("ZI", "XI", "IZ", "IX", "ZZ", "ZX", "XZ", "XX", "YY")
PAIR_VISIBLE = np.array([[0.6650898319, 0.117162275], [0.117162275, 0.3349101681]])
PAIR_TARGET = np.array([0.7, 0.3])
#: Of X, Y, Z.
PAIR_MULTIPLIERS = (-0.2733840929, 0, 0.0654712273)
PAIR_DIVERGENCE = 0.0343849929
PAIR_MARGINAL_DIVERGENCE = 0.0317085896
PETZ = (0.7035069449, 0.0156383425)
