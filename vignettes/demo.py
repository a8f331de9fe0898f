"""A first private regression, on real data: who stays married how long (statsmodels' Fair data).

``make demo`` runs this. It prints two fitted summaries and writes one coefficient plot to demo_output/.
The bounds below are public: they come from the survey's code book, never from the rows.
"""

from pathlib import Path

import numpy as np
from statsmodels.datasets import fair

import privinf as pi

EPSILON, DELTA = 1.0, 1e-6
OUTPUT = Path("demo_output")

SCHEMA = pi.Schema(
    {
        "yrs_married": (0.0, 25.0),
        "age": (17.0, 45.0),
        "children": (0.0, 6.0),
        "religious": (1.0, 4.0),
        "educ": (9.0, 20.0),
    }
)
FORMULA = "yrs_married ~ age + children + religious + educ"


def main() -> None:
    """Fit the same regression twice: with a trusted curator, and with none."""
    data = fair.load_pandas().data
    print("1. A curator holds the rows and adds one noise matrix (central privacy).\n")
    central = pi.MomentOLS.from_formula(FORMULA, data, schema=SCHEMA, trust="central").fit(
        epsilon=EPSILON, delta=DELTA
    )
    print(central.summary())
    print("\nSimultaneous 95% intervals (all coefficients at once, no further budget):")
    print(central.simultaneous(0.05, rng=0).conf_int().round(3).to_string())
    print("\nHypothesis: a year of age and a child add the same number of years")
    print(central.t_test("age = children"))

    print("\n2. Nobody is trusted: every respondent sends one noisy vector (local privacy).\n")
    local = pi.ModulatedOLS.from_formula(FORMULA, data, schema=SCHEMA).fit(epsilon=EPSILON, delta=DELTA)
    print(local.summary())
    test = local.score_test()
    print(f"\nScore test of no slopes at all: chi2({test.df}) = {test.statistic:.1f}, p = {test.pvalue:.3g}")
    print(f"Identification: {local.identification}")

    OUTPUT.mkdir(exist_ok=True)
    axes = central.plot()
    axes.figure.savefig(OUTPUT / "coefficients.png", dpi=150, bbox_inches="tight")
    print(f"\nCoefficient plot: {OUTPUT / 'coefficients.png'}")
    np.testing.assert_array_less(central.privacy.epsilon(DELTA), EPSILON * (1 + 1e-9))


if __name__ == "__main__":
    main()
