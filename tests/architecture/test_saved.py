"""Files that commit 6e70edc and later ones saved are read, say what they said, and are gone on with."""

import dataclasses
import json
import re
import shutil
import tarfile
from collections import Counter
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest
import saved_files
from click.testing import CliRunner
from saved_files import KEY, bits, numbers, release_says, says

import privinf as pi
from privinf.accounting import Ledger
from privinf.cli import main
from privinf.errors import StorageError
from privinf.federation import IdentityKey, Roster, SitePolicy

FIRST, SECOND = ARCHIVES = (
    Path(__file__).with_name("saved.tar.xz"),
    Path(__file__).with_name("saved_2.tar.xz"),
)
# Results of OLS, Logit, Poisson and GLM had the class of those of FederatedGLM.
RENAMED = ("FederatedGLMResults", "GLMResults")


def _told(archive):
    with tarfile.open(archive) as opened:
        return json.load(opened.extractfile("saved/told.json"))


TOLD = {archive: _told(archive) for archive in ARCHIVES}


class Saved:
    """The files of one archive, and what they must say."""

    def __init__(self, archive, folder):
        self.first, self.folder, self.told = archive == FIRST, folder, TOLD[archive]

    def __truediv__(self, name):
        return self.folder / name


def each(part):
    """Run a test for every archive and everything that this part of it tells of."""
    cases = [
        pytest.param(archive, slug, id=f"{archive.name[:-7]}-{slug}")
        for archive in ARCHIVES
        for slug in TOLD[archive].get(part, ())
    ]
    return pytest.mark.parametrize(("archive", "slug"), cases, indirect=["archive"], scope="module")


@pytest.fixture(scope="module", params=ARCHIVES, ids=lambda path: path.name[:-7])
def archive(request):
    return request.param


@pytest.fixture(scope="module")
def saved(archive, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    return Saved(archive, folder / "saved")


@pytest.fixture
def mine(saved, archive, tmp_path):
    """Return a copy that a test may write to."""
    shutil.copytree(saved.folder, tmp_path / "mine")
    return Saved(archive, tmp_path / "mine")


def test_the_archives_are_whole_and_small(saved):
    assert FIRST.stat().st_size + SECOND.stat().st_size < 900_000
    models = {"moments", "modulated", "examples_quadratic", "glm_binomial", "lasso", "lasso_paper", "rmgmols"}
    models |= {"dgmols", "bgmols"}
    models |= {"ols", "logit", "poisson"}
    assert saved.told["made by"] == ("commit 6e70edc" if saved.first else "commit 3625ff9")
    assert saved.told["stopped"].keys() == saved_files.STOPPED.keys()
    assert saved.told["schemas"].keys() == saved_files.SCHEMAS.keys() | {"bought"}
    assert models <= saved.told["results"].keys()
    kinds = {release["kind"] for release in saved.told["releases"].values()}
    kinds |= {"modulation", "local-examples"}
    assert kinds >= {"moments", "random-mixing", "gaussian-rows", "joined random-mixing"}


@pytest.mark.filterwarnings("ignore::privinf.errors.MisfitWarning")
@pytest.mark.filterwarnings("ignore::privinf.errors.DependentRowsWarning")
@pytest.mark.filterwarnings("ignore::privinf.errors.WeakIdentificationWarning")
@each("results")
def test_a_saved_result_says_what_it_said(saved, slug):
    result = pi.load_results(saved / "results" / f"{slug}.npz")
    now, before = says(result), saved.told["results"][slug]
    stored = {name: value for name, value in before.items() if name not in ("class", "conf_int", "epsilon")}
    assert {name: now[name] for name in stored} == stored
    assert now["class"] == before["class"] or (before["class"], now["class"]) == RENAMED
    _same_intervals(result, now, before, rtol=1e-12, atol=1e-14)
    _not_below(now["epsilon"], before["epsilon"])
    text = str(result.summary(notes="all"))
    assert all(name in text for name in map(str, result.names))
    spoken = " ".join(text.split())
    assert all(
        " ".join(note.split()) in spoken for note in result.notes if not note.startswith("Target: the")
    )
    assert str(result.privacy)


@each("releases")
def test_a_saved_release_holds_what_it_held(saved, slug):
    release = pi.load_release(saved / "releases" / f"{slug}.npz")
    assert release_says(release) == saved.told["releases"][slug]
    assert repr(release)


@pytest.mark.filterwarnings("ignore::privinf.errors.MisfitWarning")
@pytest.mark.filterwarnings("ignore::privinf.errors.DependentRowsWarning")
@pytest.mark.filterwarnings("ignore::privinf.errors.WeakIdentificationWarning")
@each("again")
def test_a_saved_release_is_fitted_again(saved, slug):
    told = saved.told["again"][slug]
    fit = saved_files.fitted_again(saved_files.release_of(saved.folder, slug), told["how"])
    _alike(fit, says(fit), told["says"])


def _same_intervals(result, now, before, **tolerance):
    """Intervals are what they were; those of weakly identified fits are score sets now, and Wald's before."""
    ends, former = numbers(now["conf_int"]), numbers(before["conf_int"])
    assert ends or now["conf_int"] == before["conf_int"]
    if ends and result.weakly_identified.notna().any():
        low, high = np.reshape(ends, (-1, 2)).T
        assert ((low < result.params) & (result.params < high)).all()
        assert len(ends) == len(former)
    else:
        np.testing.assert_allclose(ends, former, **tolerance)


def _alike(result, now, before):
    """Numbers of a solved system may differ in their last bits where the linear algebra is another one."""
    assert now["names"] == before["names"]
    assert now["class"] == before["class"] or (before["class"], now["class"]) == RENAMED
    _same_intervals(result, now, before, rtol=1e-9, atol=1e-12)
    for name in ("params", "bse", "cov_params", "epsilon"):
        a, b = numbers(now[name]), numbers(before[name])
        assert a or now[name] == before[name]
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def _not_below(now, before):
    """An epsilon is what it was, or more by its rounding: sums of pure losses are rounded up later."""
    a, b = numbers(now), numbers(before)
    assert a or now == before
    assert all(x <= y <= x * (1.0 + 1e-13) for x, y in zip(b, a, strict=True))


def test_parties_are_joined_again(saved):
    for kind in ("rmgmols", "dgmols"):
        joined = pi.load_release(saved / "releases" / f"{kind}_joined.npz")
        alone = pi.join([pi.load_release(saved / "releases" / f"{kind}_party.npz")])
        assert np.array_equal(alone.arrays["rows"], joined.arrays["rows"][:, : alone.arrays["rows"].shape[1]])


def test_files_with_a_key(saved):
    release = pi.load_release(saved / "releases_keyed.npz", key=KEY)
    assert release_says(release) == saved.told["releases"]["moments"]
    result = pi.load_results(saved / "results_keyed.npz", key=KEY)
    assert says(result) == saved.told["results"]["moments"]
    with pytest.raises(StorageError):
        pi.load_results(saved / "results_keyed.npz", key=b"another key")


def test_ledgers_say_what_they_said(mine):
    assert saved_files.ledgers_say(mine.folder) == mine.told["ledgers"]


def test_a_ledger_of_a_file_is_charged_further(mine):
    place = mine / "made.ledger"
    saved_files.restore_anchor(mine.folder, "made.ledger")
    ledger = pi.LedgerFile(place)
    ledger.spend(dataclasses.replace(ledger.entries[0], id=str(uuid4())))
    assert len(pi.LedgerFile(place)) == len(mine.told["ledgers"]["made.ledger"]["lines"]) + 1


@each("checkpoints")
def test_a_checkpointed_fit_goes_on(mine, slug):
    told, folder = mine.told["checkpoints"][slug], mine / "checkpoints" / slug
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    fit = saved_files.checkpointed(slug, folder, Ledger())
    _alike(fit, says(fit), told["says"])
    assert len(fit.privacy.entries) == told["lines"]
    now = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "lock"}
    assert now == files, "it asked anew"


# Fits that count values outside their bounds since 6e70edc: another plan, at the same price.
OTHER_PLANS = ("ols_central", "logit_central")


@pytest.mark.audit
@each("stopped")
def test_a_stopped_fit_goes_on(mine, slug):
    told, folder = mine.told["stopped"][slug], mine / "stopped" / slug
    if mine.first and slug in OTHER_PLANS:
        ledger = Ledger()
        with pytest.raises(StorageError, match="plans this fit differently; use a separate"):
            saved_files.stopped(slug, folder, ledger)
        assert not ledger.entries
        return
    bought = {path.name: path.read_bytes() for path in folder.glob("*.npz")}
    fit = saved_files.stopped(slug, folder, Ledger())
    assert [line.label for line in fit.privacy.entries] == told["lines"]
    there = {path.name: path.read_bytes() for path in folder.glob("*.npz")}
    asked = {name for name, content in bought.items() if there.get(name) != content}
    assert all("asked" in name or "reserv" in name for name in asked), "what was bought is there as it was"
    # Noise belongs to its question, to the last bit: on another processor, and where sites draw it, the sums
    # that were still to come have other noise than those of the fit that the archive tells of.
    before = told["says"]
    now = says(fit)
    assert now["names"] == before["names"]
    assert now["class"] == before["class"] or (before["class"], now["class"]) == RENAMED
    if numbers(now["bse"]):  # else neither has intervals
        far = np.abs(np.subtract(numbers(now["params"]), numbers(before["params"])))
        assert (far < 6.0 * np.add(numbers(now["bse"]), numbers(before["bse"]))).all()
    else:
        assert now["bse"] == before["bse"] == "NotAvailableError"
    np.testing.assert_allclose(numbers(now["epsilon"]), numbers(before["epsilon"]), rtol=1e-12)


@each("schemas")
def test_a_saved_schema_declares_what_it_declared(saved, slug):
    declared = saved.told["schemas"][slug]
    schema = pi.load_schema(saved / "schemas" / f"{slug}.toml")
    assert json.loads(json.dumps(schema.to_dict())) == declared
    assert pi.Schema.from_dict(declared).digest == schema.digest
    assert isinstance(schema, pi.FoundSchema) == (slug == "bought")


def test_keys_and_plans(saved):
    assert IdentityKey.load(saved / "identity.key").secret_bytes() == bytes(range(32))
    study = saved / "study"
    roster = Roster.from_json((study / "roster.json").read_text(encoding="utf-8"))
    keys = {name: IdentityKey.load(study / f"{name}.key").public for name in ("north", "south")}
    assert dict(roster.keys) == keys
    text = (study / "plan.json").read_text(encoding="utf-8")
    plan = pi.MixingPlan.load(study / "plan.json")
    assert plan.to_json() + "\n" == text
    assert pi.load_release(study / "a.npz").noise_model["plan"] == plan.digest
    assert SitePolicy(**json.loads((study / "policy.json").read_text(encoding="utf-8"))).min_sites == 2


def test_the_commands_go_on_with_a_saved_study(mine, monkeypatch):
    study = mine / "study"
    monkeypatch.chdir(study)
    saved_files.restore_anchor(study, "a.ledger")
    for words in (
        "plan check plan.json",
        "release --plan plan.json --party a --data a.csv --ledger a.ledger --out again.npz --seed 1 --quiet",
        "join a.npz b.npz --plan plan.json --out rejoined.npz",
        "fit weight~age+bmi joined.npz --summary again.txt",
    ):
        result = CliRunner().invoke(main, words.split(), prog_name="privinf")
        assert result.exit_code == 0, result.output
    first, second = (pi.load_release(study / f"{name}.npz") for name in ("a", "again"))
    assert bits(first.arrays["rows"]) == bits(second.arrays["rows"])
    rejoined, joined = (pi.load_release(study / f"{name}.npz") for name in ("rejoined", "joined"))
    assert bits(rejoined.arrays["rows"]) == bits(joined.arrays["rows"])
    assert not Counter(_undated("fit.txt")) - Counter(_undated("again.txt"))


def _undated(name):
    """Yield the words of a summary above its notes; of a coefficient its name and estimate, not the errors.

    A later version may add rows, and choose other notes.
    """
    for line in Path(name).read_text(encoding="utf-8").splitlines():
        if line.startswith("[1]"):
            break
        # As commit 6e70edc said it.
        text = line.replace("can be trusted", "not flagged").replace(
            "mixed rows (", "random combinations of rows ("
        )
        text = text.replace("Neighbours:", "Neighbors:").replace(
            "Residual var. (corrected):", "Residual variance: "
        )
        text = re.sub(r"^Epsilon \(delta", "Release, epsilon (delta", text)
        text = re.sub(r"^Epsilon, whole ledger: +\S+", "Spent by this fit: 0 (uses a release)", text)
        words = text.split()
        if "Date" not in line:
            yield from words[:2] if words[:1] in (["Intercept"], ["age"], ["bmi"]) else words
