"""Compare what the flights handler wrote with the right answer: `python check.py DIR`.

DIR is the directory that FLIGHTS_OUT named while the handler ran. Exit status 0: every aircraft is
right, to the last bit; 1: some are not; 2: DIR cannot be used.
"""

import sys
from pathlib import Path

from kafka_keyshared.lab.demo.expected import compare, expected, read_answers


def main(arguments: list[str]) -> int:
    """Print `match` or `mismatch` with the first differences; return the exit status."""
    if len(arguments) != 1 or not Path(arguments[0]).is_dir():
        sys.stderr.write("usage: check.py DIR, the directory that FLIGHTS_OUT named\n")
        return 2
    try:
        answers = read_answers(Path(arguments[0]))
    except (OSError, ValueError) as error:
        sys.stderr.write(f"check.py: {error}\n")
        return 2
    right = expected()
    differences = compare(right, answers)
    if differences:
        sys.stdout.write("mismatch\n" + "".join(f"  {line}\n" for line in differences))
        return 1
    departed = sum(aircraft.departed for aircraft in right.values())
    sys.stdout.write(f"match: {len(right):,} aircraft, {departed:,} departures\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
