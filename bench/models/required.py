"""What the native backend must reach, as data. tools/bench_models.py says which of these hold."""

from dataclasses import dataclass

NATIVE, EAGER, INDUCTOR, JAX = "native", "eager C++", "Inductor", "JAX"


@dataclass(frozen=True)
class Required:
    """A measure of the native backend that is at most `most` times that of another engine.

    measure: "step" (ratios of steps), "cold" (seconds of the first call with an empty cache) or "peak" (memory).
    rows: "MODEL/WAY" that it is about; empty: each that was measured. mean: of all of them together, the geometric one.
    """

    measure: str
    other: str
    most: float
    rows: tuple = ()
    mean: bool = False


@dataclass(frozen=True)
class Limit:
    """A measure of the native backend that is at most `most`, in seconds or bytes, whatever the others take.

    measure: "warm" (seconds of the first call with a filled cache, beyond its steps) or "peak".
    """

    measure: str
    row: str
    most: float


RATIOS = (
    Required("step", INDUCTOR, 1.0),
    Required("step", INDUCTOR, 0.8, mean=True),
    Required("step", INDUCTOR, 0.5, rows=("norm_chain/step",)),
    Required("step", JAX, 0.8, rows=("pinn/step",)),
    Required("step", EAGER, 0.5, rows=("tiny/step",)),
    Required("step", EAGER, 0.15, rows=("tiny/inside",)),
    Required("step", EAGER, 0.8, mean=True),
    Required("step", EAGER, 1.03),
    Required("cold", INDUCTOR, 1 / 30),
    Required("cold", JAX, 1.0),
    Required("peak", INDUCTOR, 1.0),
    Required("peak", EAGER, 1.0),
)
LIMITS = (
    Limit("warm", "gpt12/step", 0.15),
    Limit("peak", "norm_chain/step", 60e6),
)
