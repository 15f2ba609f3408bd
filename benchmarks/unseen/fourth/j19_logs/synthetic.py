"""Log lines of a service: `level|code|millis`, eight events a window."""
import random

LEVELS = ("INFO", "WARN", "ERROR")
SERVICES = ("cart", "search", "login", "mail")


def write_lines(rank, day, n=160 * 8):
    rng = random.Random(f"{SERVICES[rank % 4]}-{day}")
    lines = []
    for i in range(n):
        millis = str(rng.randrange(1, 900))
        if SERVICES[rank % 4] == "search" and day == 2 and i == 700:
            millis += "ms"
        lines.append(f"{rng.choice(LEVELS)}|{rng.randrange(30)}|{millis}")
    return lines
