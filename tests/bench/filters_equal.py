"""Every filter's bytes on a GPU against those of its specification on the CPU, as a table.

Method. What the GPU tests compare (tests/gpu/equality.py), counted: for every filter its example,
its defaults and each parameter at both ends of its range or at each of its values, on noise of
eight sizes from one pixel to 1920 × 1080 (the largest only where the specification takes no seconds
for it), grey, RGB and RGBA in one batch. `different` are samples that are not equal, `most_off` by
how many levels at most.

Run: python -m tests.bench.filters_equal
"""

from dataclasses import asdict

from tests.bench.report import report
from tests.gpu.equality import MAX_PIXELS, NAMES, SIZES, compared, runner
from workers.engines.cuda.engine import CudaEngine


def main() -> None:
    """Compare everything, print a table, and all of it as JSON on the last line."""
    run, rows = runner(CudaEngine([], 64, MAX_PIXELS, "cuda:0")), []
    for name in NAMES:
        found = compared(run, name)
        rows.append({"filter": name, **asdict(found)})
        print(f"{name:20} {found.parameters:4} parameters {found.samples:12,} samples", end=" ")
        print(f"{found.different:6} different, {found.most_off} at most")
    report("filters_equal", sizes=SIZES, filters=rows)


if __name__ == "__main__":
    main()
