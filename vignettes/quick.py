"""Every vignette in a quick run: few draws, few rows, pages in a folder of their own.

``python vignettes/quick.py [FOLDER]`` (`make vignettes-quick`) runs two at a time and leaves the pages of the
repository as they are. A vignette says what it left out because data are not here; one that fails fails the run.
"""

import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

HERE = Path(__file__).resolve().parent
# The longest first.
VIGNETTES = (
    "1_modulated_learning",
    "2c_three_clinics",
    "3_private_examples",
    "2b_real_data_mixing",
    "4_federated_lasso",
    "4b_wages",
    "5b_federated_acs",
    "5_federated_glm",
    "6_three_hospitals",
    "2a_synthetic_mixing",
)


def run(name: str, folder: Path) -> tuple[str, str, str]:
    """Return how a vignette ended, what it printed of its page, and its error."""
    started = time.time()
    path = os.pathsep.join([str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    settings = {"VIGNETTE_QUICK": "1", "VIGNETTE_FOLDER": str(folder), "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, str(HERE / f"{name}.py")], env=os.environ | settings, capture_output=True, text=True
    )
    told = [line for line in done.stdout.splitlines() if "left out" in line or "written in" in line]
    ended = "done" if done.returncode == 0 and (folder / f"{name}.md").is_file() else "FAILED"
    return (
        f"{name}: {ended} after {time.time() - started:.0f} s",
        "\n".join(told),
        done.stderr if ended == "FAILED" else "",
    )


def main(words: list[str]) -> int:
    """Run all vignettes; the number of those that failed is the exit status."""
    if words[1:] or any(word.startswith("-") for word in words):
        print(__doc__)
        return 0 if words in (["-h"], ["--help"]) else 2
    folder = Path(words[0]) if words else Path(tempfile.mkdtemp(prefix="vignettes-"))
    folder.mkdir(parents=True, exist_ok=True)
    started, failed = time.time(), 0
    with ThreadPoolExecutor(2) as pool:
        for done in as_completed([pool.submit(run, name, folder) for name in VIGNETTES]):
            ended, told, error = done.result()
            print(ended, told, error[-3000:], sep="\n", flush=True)
            failed += bool(error) or "FAILED" in ended
    print(
        f"{len(VIGNETTES) - failed} of {len(VIGNETTES)} pages in {folder} after {time.time() - started:.0f} s"
    )
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
