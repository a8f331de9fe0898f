# %% [markdown]
# # Three clinics, three processes, one regression
#
# Three holders of different columns about the same people agree on a plan. Each turns its own rows into one
# file, and an analyst runs a regression on the files. The last section measures what a dishonest fourth party
# could learn about one person.
#
# Run it with `python vignettes/2c_three_clinics.py` (two minutes). It writes the page
# `2c_three_clinics.md`. The people are simulated, and the noise is seeded so that the page can be made again:
# simulation, not a private release.

# %%
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import math
import re
import shlex
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import statsmodels.formula.api as smf
from page import Page, wrapped
from scipy.stats import norm

import privinf as pi

PAGE = Page(__file__, "")
PEOPLE, EPSILON, DELTA = 500_000, 1.5, 1e-6
BOUNDS = {"age": (30, 80), "bmi": (18, 42), "hba1c": (4.5, 8.5), "sbp": (95, 185)}
HOLDERS = {"registry": ["age", "bmi"], "lab": ["hba1c"], "cardiology": ["smoker", "sbp"]}
FILES = {"registry": "registry.csv", "lab": "lab.parquet", "cardiology": "cardiology.csv.gz"}
FORMULA = "sbp ~ age + bmi + smoker + hba1c"

FOLDER = Path(tempfile.mkdtemp(prefix="three-clinics-"))
say, table = PAGE.say, PAGE.table


def start(command: str) -> subprocess.Popen[str]:
    """Start one process of the command line in the study's folder."""
    words = [sys.executable, "-m", *shlex.split(command.replace("\\\n", " "))]
    return subprocess.Popen(words, cwd=FOLDER, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def typed(*commands: str, shown: str | None = None) -> list[str]:
    """Run commands simultaneously, and put them on the page with their output."""
    answers = []
    for process in [start(command) for command in commands]:
        out, err = process.communicate()
        if process.returncode not in (0, 2):
            raise SystemExit(err)
        answers.append(out + err)
    for command, answer in zip(commands, answers, strict=True):
        text = answer.rstrip() if shown is None else shown
        PAGE.add(f"```console\n$ {command}\n{text}\n```")
    return answers


# %% [markdown]
# ## The people


# %%
def people() -> pd.DataFrame:
    """Return simulated people; the distribution of blood pressure is known."""
    rng = np.random.default_rng(2026)
    age = rng.uniform(30, 80, PEOPLE)
    bmi = 18 + 24 * rng.beta(2.2, 2.8, PEOPLE) + 0.03 * (age - 55)
    smoker = rng.random(PEOPLE) < 0.34 - 0.002 * (age - 55)
    hba1c = 3.9 + 0.01 * age + 0.03 * bmi + 0.7 * rng.gamma(2, 0.55, PEOPLE)
    sbp = 62 + 0.5 * age + 0.8 * bmi + 6 * smoker + 2.5 * hba1c + rng.normal(0, 9, PEOPLE)
    return pd.DataFrame(
        {
            "patient": rng.permutation(np.arange(1_000_000, 1_000_000 + PEOPLE)),
            "age": age.round(1),
            "bmi": bmi.round(1),
            "hba1c": hba1c.round(2),
            "smoker": np.where(smoker, "yes", "no"),
            "sbp": sbp.round(0),
        }
    )


POOLED = people()
for party, (_, seed) in zip(HOLDERS, enumerate((4, 5, 6)), strict=True):
    own = POOLED[["patient", *HOLDERS[party]]].sample(frac=1.0, random_state=seed)
    path = FOLDER / FILES[party]
    if path.suffix == ".parquet":
        own.astype({"patient": str}).to_parquet(path)
    else:
        own.to_csv(path, index=False)
POOLED[["patient"]].sort_values("patient").to_csv(FOLDER / "roster.csv", index=False)

say(
    f"""
    # Three clinics, three processes, one regression

    How much does blood pressure rise with age, weight, smoking and blood sugar? A registry has age and body
    mass index, a laboratory has HbA1c, and a cardiology network has smoking and blood pressure. All three
    parties have the same {PEOPLE:,} people under the same patient numbers. No party may show a row to another
    party, and nobody may pool the rows. The people are simulated, from a distribution that we know:

    `sbp = 62 + 0.5 age + 0.8 bmi + 6 (if smoking) + 2.5 hba1c + normal noise of sd 9`.

    Every box below is a real process of the command line `privinf`, run by `vignettes/2c_three_clinics.py`.
    The noise is seeded (`--seed`), so that the page can be made again. A real holder omits the option.

    ## 1. The plan

    First the holders agree publicly on three things: the people in the study (a roster of patient numbers),
    the columns and their bounds, and the epsilon of each release. Bounds come from prior knowledge, never
    from the data. Values outside are clipped, and narrower bounds need less noise.
    """
)
(FOLDER / "columns.csv").write_text(
    "party,column,low,high,levels\n"
    + "".join(
        f"{party},{column},{BOUNDS[column][0]},{BOUNDS[column][1]},\n"
        if column in BOUNDS
        else f"{party},{column},,,no|yes\n"
        for party, columns in HOLDERS.items()
        for column in columns
    )
)
PAGE.add("```text\ncolumns.csv\n\n" + (FOLDER / "columns.csv").read_text().rstrip() + "\n```")
typed(
    "privinf plan new --columns columns.csv --id patient --roster roster.csv \\\n"
    f"    --epsilon {EPSILON} --delta 1e-6 --label sbp --seed 11 --out plan.json"
)
PLAN = pi.MixingPlan.load(FOLDER / "plan.json")
say(
    f"""
    The plan chose k = {PLAN.k} from the number of people, the noise and a public guess of R², and forecasts
    that the regression will be identified. At this time, no row has been read.

    ## 2. The releases

    Each holder now runs one command on its own computer. The files differ in format and in the order of their
    rows, and one stores the patient numbers as text; the id column aligns them. Each holder keeps a ledger
    with a limit of its own. Cardiology's first file has an error: one person is missing and another is there
    twice. The release is refused and costs nothing:
    """
)
cardiology = pd.read_csv(FOLDER / FILES["cardiology"])
cardiology.loc[0, "patient"] = cardiology.loc[1, "patient"]
cardiology.to_csv(FOLDER / "wrong.csv", index=False)
typed("privinf ledger create cardiology.ledger --epsilon 2 --delta 1e-6")
for party in ("registry", "lab"):
    pi.LedgerFile.create(FOLDER / f"{party}.ledger", pi.Budget(epsilon=2.0, delta=1e-6))
typed(
    "privinf release --plan plan.json --party cardiology --data wrong.csv \\\n"
    "    --ledger cardiology.ledger --out cardiology.npz"
)
assert len(pi.LedgerFile(FOLDER / "cardiology.ledger")) == 0
say("With the right files, the three processes run at the same time:")

# %% [markdown]
# ## The releases

# %%
RELEASES = [
    f"privinf release --plan plan.json --party {party} --data {FILES[party]} \\\n"
    f"    --ledger {party}.ledger --seed {seed} --out {party}.npz"
    for seed, party in enumerate(HOLDERS, start=1)
]
typed(*RELEASES)
MIXED = pi.load_release(FOLDER / "lab.npz").arrays["rows"]
say(
    f"""
    The laboratory has sent {len(MIXED)} noisy sums over all {PEOPLE:,} people and the noisy total: about
    {(FOLDER / "lab.npz").stat().st_size / 1000:.0f} kB, whatever the number of people.

    The ledgers still enforce their limits. A second release by the laboratory would reveal more about its
    people. The laboratory's own ledger refuses it, and no noise is drawn:
    """
)
typed("privinf release --plan plan.json --party lab --data lab.parquet --ledger lab.ledger --out again.npz")

# %% [markdown]
# ## The analyst

# %%
say(
    """
    ## 3. The regression

    The analyst has three files and the plan. `join` checks that they belong together: the same plan, people,
    seed and mixing matrix, each party once.
    """
)
typed("privinf join registry.npz lab.npz cardiology.npz --plan plan.json --out joined.npz")
(fitted,) = typed(f'privinf fit "{FORMULA}" joined.npz --summary blood_pressure.html')
JOINED = pi.load_release(FOLDER / "joined.npz")
FIT = pi.RMGMOLS.from_release(JOINED).regress(FORMULA)
assert re.search(rf"smoker\[T.yes\]\s+{FIT.params['smoker[T.yes]']:.4f}", fitted)
clipped = POOLED.assign(**{name: POOLED[name].clip(*bounds) for name, bounds in BOUNDS.items()})
OLS = smf.ols(FORMULA, clipped).fit(cov_type="HC0")
interval = FIT.conf_int()
SAMPLE = pi.RMGMOLS.from_release(JOINED).regress(FORMULA, target="sample")
JOINED_ROWS = FIT.release.arrays["response"]
GAUSSIAN, MULTIPLIED = (FIT.simultaneous(method=method, rng=1) for method in ("gaussian", "multiplier"))
inside = sum(interval.loc[name, 0] <= OLS.params[name] <= interval.loc[name, 1] for name in FIT.params.index)
say(
    """
    For comparison, the estimate from pooled rows, which is available here because the people are simulated
    (ordinary least squares on all rows, clipped to the bounds):
    """
)
table(
    pd.DataFrame(
        {
            "coefficient": FIT.params.index,
            "pooled rows": [f"{OLS.params[name]:.3f}" for name in FIT.params.index],
            "three files": [f"{value:.3f}" for value in FIT.params],
            "standard error": [f"{value:.3f}" for value in FIT.bse],
            "95% interval": [f"{low:.2f} to {high:.2f}" for low, high in interval.to_numpy()],
        }
    )
)
say(
    f"""
    {inside} of the {len(FIT.params)} intervals cover the pooled estimate. The standard errors are much larger
    than those of the pooled rows (the column "no noise"): that is the price without a trusted party.

    The share of each source of error in the variance (`fit.variance_formula`):
    """
)
FORMULA_OF = FIT.variance_formula
shares = FORMULA_OF.shares.map("{:.1%}".format)
shares.insert(0, "coefficient", FIT.params.index)
table(shares)
PAGE.printed(wrapped(FORMULA_OF.equation))
STRONGEST = FORMULA_OF.shares.loc["smoker[T.yes]"].idxmax()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of the plots' own libraries
    import arviz as az

    (forest,) = az.plot_forest(
        [FIT.to_arviz(4000, rng=1), SAMPLE.to_arviz(4000, rng=1)],
        model_names=["population", "these people"],
        coords={"coefficient": list(FIT.params.index[1:])},
        hdi_prob=0.95,
        figsize=(6.0, 3.4),
        textsize=9,
    )
say(
    f"""
    The largest term of smoking's coefficient is "{STRONGEST}". Joint intervals of all coefficients can also
    be computed from the {len(JOINED_ROWS)} mixed rows, with normal multipliers
    (`fit.simultaneous(method="multiplier")`). Their critical value is {MULTIPLIED.critical_value:.3f}; with
    the multivariate t distribution it is {GAUSSIAN.critical_value:.3f}. ArviZ accepts draws from the sampling
    distribution:
    """
)
PAGE.add(
    "```python\naz.plot_forest(\n    [fit.to_arviz(4000), joined.regress(formula, "
    'target="sample").to_arviz(4000)],\n    model_names=["population", "these people"], hdi_prob=0.95,\n)\n```'
)
PAGE.figure(
    forest.figure,
    "forest",
    "95% intervals of the slopes, for the population that these people are from and for these people alone. "
    "The error for these people alone is due to mixing and noise. With half a million people the sampling "
    "error is nearly zero.",
)
say(
    """
    The files serve other analyses, without further cost: any column that was released may be the response.
    """
)
typed('privinf fit "hba1c ~ bmi + age" joined.npz')

# %% [markdown]
# ## The dishonest party
#
# The attacker knows the plan, the matrix, every row of all other people and all columns of the target except
# smoking and blood pressure. She wants to distinguish two rows of the target. The best test between two
# values is the likelihood ratio, and she knows both distributions exactly.

# %%
REPEATS = 2000
small = pi.MixingPlan.from_dict(PLAN.to_dict() | {"n": 2 * PLAN.k, "ids_sha256": None})
rows = POOLED[HOLDERS["cardiology"]].iloc[: small.n].reset_index(drop=True)


def sums(plan: pi.MixingPlan, frame: pd.DataFrame) -> np.ndarray:
    """Return the mean of a release of these rows: the sums without noise, in one vector."""
    mechanism = plan.mechanism("cardiology")
    found = mechanism.release(frame, epsilon=math.inf, delta=DELTA)
    return np.concatenate([found.arrays["rows"].ravel(), found.arrays["ones_row"]])


def attack(first: tuple[str, float], second: tuple[str, float]) -> tuple[float, float]:
    """Return the power of the best 5% test of one row of the target against another: simulated, exact."""
    worlds = []
    for smoker, sbp in (first, second):
        known = rows.copy()
        known.loc[17, ["smoker", "sbp"]] = [smoker, sbp]
        worlds.append((known, sums(small, known)))
    (low_rows, low), (high_rows, high) = worlds
    rng = np.random.default_rng(8)
    scores = []
    for frame in (low_rows, high_rows):
        releases = (small.release("cardiology", frame, rng=rng) for _ in range(REPEATS))
        sent = (np.concatenate([r.arrays["rows"].ravel(), r.arrays["ones_row"]]) for r in releases)
        scores.append(np.array([(each - low) @ (high - low) for each in sent]))
    scale = small.release("cardiology", low_rows, rng=0).noise_model["scale"]
    cut = norm.isf(0.05) * scale * np.linalg.norm(high - low)
    return float(np.mean(scores[1] > cut)), float(
        norm.sf(norm.isf(0.05) - np.linalg.norm(high - low) / scale)
    )


REPORT = pi.PrivacyReport.from_entries(pi.load_release(FOLDER / "cardiology.npz").entries, delta=DELTA)
bound = float(norm.sf(norm.isf(0.05) - REPORT.mu))
PAIRS = {
    "non-smoker at 95 or smoker at 185 (the ends of the bounds)": (("no", 95.0), ("yes", 185.0)),
    "smoker or not, at 130": (("no", 130.0), ("yes", 130.0)),
    "130 or 160, non-smoker": (("no", 130.0), ("no", 160.0)),
}
powers = {name: attack(*pair) for name, pair in PAIRS.items()}
say(
    f"""
    ## 4. A fourth, dishonest party

    Suppose that a fourth clinic, which joined under a pretext, obtains all the files. Suppose the worst: its
    analyst knows the plan and so the mixing matrix, has the rows of the registry and the laboratory, and even
    has the cardiology rows of *every other person*. She subtracts all this information, and one person's row
    plus the noise remains. She wants to decide which of two values this person has. No test is better than
    the likelihood ratio, and she can compute it exactly.

    Cardiology's release has mu = {REPORT.mu:.3f} (epsilon {REPORT.epsilon(DELTA):.3g} at delta {DELTA:g}): a
    test that is wrong in 5% of cases under one value detects the other in at most {bound:.1%}. We ran the
    attack on {REPEATS:,} releases of each of the two values, with {small.n:,} people. Their number does not
    matter, since she subtracts all others:
    """
)
table(
    pd.DataFrame(
        [[name, f"{found:.1%}", f"{exact:.1%}", f"{bound:.1%}"] for name, (found, exact) in powers.items()],
        columns=["the two values", "power, simulated", "power, exact", "bound"],
    )
)
slack = 4.0 * math.sqrt(bound * (1 - bound) / REPEATS)
assert all(found <= bound + slack and exact <= bound + 1e-6 for found, exact in powers.values())
report = pi.PrivacyReport.from_entries(JOINED.entries, delta=DELTA)
say(
    f"""
    Guessing detects 5%. Only the two ends of the bounds attain this bound; the power for realistic pairs is
    lower. The rows of the registry and the laboratory did not help her, because the matrix is public anyway
    and each release has noise of its own. Against a person's total row, all three releases would count
    together: epsilon {report.epsilon(DELTA):.3g}, the epsilon per person in the summary above.

    The guarantee does not cover two things, and should not. One is that the person takes part in the study:
    the roster is public. The other is the result of the regression about people in general. That smokers have
    a higher blood pressure is the purpose of the study, and its result would be the same without that person.
    """
)

for path in FOLDER.iterdir():
    path.unlink()
FOLDER.rmdir()
PAGE.write()
