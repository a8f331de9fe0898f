"""A connection that fails in the middle of a fit: which site, what was charged, and how to go on."""

import errno
import ssl

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.error_boundary import bare, error_boundary, is_bare
from privinf.errors import AlignmentError, PrivinfError, SiteConnectionError
from privinf.federation import InProcessFederation, Query, RemoteSite, Site, SitePolicy, TrustedServer
from privinf.federation.rounds import reason_of, replies_of

SCHEMA = pi.Schema({"y": (-4.0, 4.0), "x": (-1.0, 1.0), "z": (-1.0, 1.0)})
DESIGN = pi.Design.from_formula("y ~ x + z", SCHEMA)
SECRET = "a diagnosis of row 17"
FAILURES = [
    (ConnectionRefusedError(errno.ECONNREFUSED, SECRET), "Connection refused"),
    (ConnectionResetError(SECRET), "the other end closed the connection"),
    (TimeoutError(SECRET), "no answer within the timeout"),
    (OSError(errno.ENETUNREACH, SECRET), "Network is unreachable"),
    (ssl.SSLError(1, SECRET), "TLS"),
    (EOFError(SECRET), "the other end closed the connection"),
]


class Failing:
    """A transport over which the connection fails at some questions, from the `after`-th on."""

    def __init__(self, federation, problem=None, after=10**9):
        self.inner, self.problem, self.after, self.count = federation, problem, after, 0
        self.addresses = {name: f"{name}.example.org:9000" for name in federation.sites}

    @property
    def sites(self):
        return self.inner.sites

    def ask(self, query, sites=None):
        if query.op not in ("describe", "design", "reserve", "end"):
            self.count += 1
            if self.count > self.after:
                raise self.problem
        return self.inner.ask(query, sites)


def sites(n=6000):
    rng = np.random.default_rng(0)
    made = {}
    for name in ("north", "south"):
        frame = pd.DataFrame(rng.uniform(-1, 1, (n, 2)), columns=["x", "z"])
        frame["y"] = frame["x"] - frame["z"] + rng.normal(0, 0.3, n)
        policy = SitePolicy(trusted_server=True, simulation=True)
        made[name] = Site(frame, SCHEMA, policy=policy)
    return InProcessFederation(made)


def fit_of(kind, federation, **options):
    spending = {"epsilon": 4.0, "delta": 1e-6, "rng": 0}
    if kind == "lasso":
        options.pop("checkpoint", None)
        model = pi.DebiasedLasso.from_formula("y ~ x + z", federation, schema=SCHEMA)
        return model, lambda: model.fit(targets=["x"], **spending, **options)
    kinds = {"OLS": pi.OLS, "MomentOLS": pi.MomentOLS}
    model = kinds[kind].from_formula("y ~ x + z", federation, schema=SCHEMA, trust="server")
    more = {"cov_type": "HC0"} if kind == "MomentOLS" else {}
    return model, lambda: model.fit(**spending, **more, **options)


@pytest.mark.parametrize(("problem", "reason"), FAILURES, ids=lambda one: type(one).__name__)
def test_a_failed_connection_names_sites_addresses_and_reason(problem, reason):
    with pytest.raises(SiteConnectionError) as failed:
        TrustedServer(Failing(sites(20), problem, after=0), rng=0, design=DESIGN).scalar(
            "squared_residuals", {"residual_clip": 1.0}, mu=1.0, label="variance"
        )
    text, cause = str(failed.value), failed.value.__cause__
    assert "sites 'north' at north.example.org:9000, 'south' at south.example.org:9000" in text
    assert reason.lower() in text.lower()
    remedy = "check the TLS certificates" if isinstance(problem, ssl.SSLError) else "check that the sites run"
    assert f"; {remedy}" in text
    assert SECRET not in text + repr(cause)
    assert isinstance(failed.value, AlignmentError)
    assert isinstance(failed.value, ConnectionError)
    builtin = type(problem) if type(problem).__module__ == "builtins" else OSError
    assert isinstance(cause, ConnectionResetError if isinstance(problem, EOFError) else builtin)
    assert cause.__traceback__ is None
    assert failed.value.__context__ is None


def test_the_reason_of_a_failed_tls_connection_is_in_words():
    problem = ssl.SSLError(1, SECRET)
    problem.reason = "CERTIFICATE_VERIFY_FAILED"
    assert reason_of(problem) == "TLS: certificate verify failed"


@pytest.mark.parametrize("kind", ["OLS", "MomentOLS", "lasso"])
def test_a_fit_says_what_it_has_charged_and_that_nothing_is_stored(kind):
    model, fit = fit_of(kind, Failing(sites(), ConnectionResetError(SECRET), after=1))
    with pytest.raises(SiteConnectionError, match=r"north\.example\.org:9000") as failed:
        fit()
    text, entries = str(failed.value), model.ledger.entries
    report = pi.PrivacyReport.from_entries(entries, delta=1e-6)
    assert len(entries) >= 2
    assert (
        f"charged {len(entries)} releases to the ledger of the fit, in total epsilon {report.epsilon():.4g} "
        "at delta 1e-06" in text
    )
    assert ("checkpoint=folder" in text) == (kind != "lasso")
    assert "is charged in full again" in text
    assert isinstance(failed.value.__cause__, ConnectionResetError)


@pytest.mark.parametrize("kind", ["OLS", "MomentOLS"])
def test_a_stored_fit_goes_on_as_its_message_says(kind, tmp_path):
    folder, federation = tmp_path / "fit", Failing(sites(), TimeoutError(SECRET), after=1)
    model, fit = fit_of(kind, federation, checkpoint=folder)
    with pytest.raises(SiteConnectionError) as failed:
        fit()
    assert f"Repeat the same call to resume from {folder}" in str(failed.value)
    federation.after = 10**9
    found = fit()
    assert model.ledger.total().mu == pytest.approx(found.privacy.mu)
    assert np.isfinite(found.params).all()


def test_nothing_charged_is_said_too():
    model, fit = fit_of("OLS", Failing(sites(), ConnectionResetError(SECRET)))
    model._rows.federation.inner.ask = _refused
    with pytest.raises(SiteConnectionError, match=r"has charged nothing to the ledger of the fit\. Repeat"):
        fit()
    assert not model.ledger.entries


def _refused(query, sites=None):
    raise ConnectionRefusedError(errno.ECONNREFUSED, SECRET)


def test_a_model_is_not_made_over_a_connection_that_fails():
    federation = Failing(sites(20))
    federation.inner.ask = _refused
    with pytest.raises(SiteConnectionError, match="Connection refused"):
        pi.OLS.from_formula("y ~ x + z", federation, schema=SCHEMA)
    with pytest.raises(SiteConnectionError, match="Connection refused"):
        replies_of(federation, Query("describe"))


def test_a_refusal_in_the_middle_says_what_was_charged():
    federation = Failing(sites(), PrivinfError("unused"), after=1)
    federation.problem = pi.errors.NotAvailableError("site 'north': its holder has stopped it")
    _, fit = fit_of("OLS", federation)
    with pytest.raises(pi.errors.NotAvailableError, match=r"has stopped it\. This call has charged 2"):
        fit()


def test_a_daemon_that_is_not_there_is_named_with_its_path(tmp_path):
    with pytest.raises(SiteConnectionError, match=f"'north' at {tmp_path}/socket") as failed:
        RemoteSite(tmp_path / "socket", timeout=0.1).handle(Query("describe"), "north")
    assert isinstance(failed.value.__cause__, FileNotFoundError)
    assert failed.value.__cause__.filename is None


# ---- what an error boundary lets out


def test_a_boundary_keeps_a_cause_only_where_it_has_no_text():
    @error_boundary
    def raising(cause):
        raise SiteConnectionError("no answer") from cause

    for cause, stays in (
        (bare(ConnectionResetError(SECRET)), True),
        (bare(OSError(errno.ECONNREFUSED, SECRET, "/some/file")), True),
        (ConnectionResetError(SECRET), False),
        (ConnectionResetError(errno.ECONNRESET, SECRET), False),
        (ValueError(), False),
    ):
        with pytest.raises(SiteConnectionError) as raised:
            raising(cause)
        assert (raised.value.__cause__ is cause) == stays == is_bare(cause)
        assert raised.value.__context__ is None


def test_a_cause_with_a_traceback_or_notes_is_not_bare():
    noted = bare(TimeoutError())
    noted.add_note(SECRET)
    try:
        raise TimeoutError
    except TimeoutError as error:
        raised = error
    assert not is_bare(noted)
    assert not is_bare(raised)
