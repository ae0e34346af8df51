"""How busy other programs keep the processors of the measurement."""

import os
import time

# A block counts as loaded if other programs took more than this share of the processors.
MOST_FOREIGN = 0.06


def processors(count):
    """The first processors that this process may use."""
    return sorted(os.sched_getaffinity(0))[:count]


def busy_ticks(of):
    """Ticks that the processors spent on anything, the host's other guests included."""
    names, ticks = {f"cpu{number}" for number in of}, 0
    with open("/proc/stat") as lines:
        for line in lines:
            name, *values = line.split()
            if name in names:
                user, nice, system, idle, wait, irq, soft_irq, steal = map(int, values[:8])
                ticks += user + nice + system + irq + soft_irq + steal
    return ticks


class Watch:
    """Says how much of the processors was taken by others while something ran."""

    def __init__(self, of):
        self.processors = of
        self.ticks, self.time = busy_ticks(of), time.perf_counter()

    def foreign(self, own_seconds):
        """The share since the beginning, given the seconds of processor time that are ours."""
        busy = (busy_ticks(self.processors) - self.ticks) / os.sysconf("SC_CLK_TCK")
        wall = (time.perf_counter() - self.time) * len(self.processors)
        return max(0.0, (busy - own_seconds) / wall)
