"""What an analyst states about a fit is stored next to a site's ledger lines: quoted, short, in no digest."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from glm_sites import NAMES, model_of, sites_of

import privinf as pi
from privinf.accounting.purposes import LONGEST_SUBJECT, charged_for, stated_text
from privinf.cli import main
from privinf.errors import StorageError
from privinf.federation import InProcessFederation, Query, Site, SiteLedger, SitePolicy, TrustedServer
from privinf.federation.site_ledger import read_site_ledger
from privinf.wire import Requests

DESIGN = pi.Design.from_arrays(["x"], bounds=[(-1, 1)], y_bounds=(-2, 2))
ROWS = np.full(500, 0.5), np.full((500, 1), 1.0)
FORGED = 'x"\n2026-01-01 00:00 UTC  nothing: epsilon 0\x1b[2J \u202e<b>' + "y" * 5000


@pytest.fixture
def ledger(tmp_path):
    with SiteLedger(tmp_path / "north.ledger", pi.Budget(mu=9.0)) as ledger:
        yield ledger


def server_of(site_ledger, ledger=None):
    site = Site(ROWS, DESIGN, policy=SitePolicy(trusted_server=True), ledger=site_ledger)
    return TrustedServer(InProcessFederation({"north": site}), ledger=ledger)


def release(server):
    return server.scalar("squared_residuals", {"residual_clip": 1.0}, mu=1.0, label="variance")


def shown(path, *options):
    result = CliRunner().invoke(main, ["ledger", "show", str(path), *options])
    assert result.exit_code == 0, result.output
    return result.output


def test_a_sites_ledger_names_model_formula_and_name_of_a_fit(ledger, tmp_path):
    with charged_for("OLS: y ~ x"):
        server = server_of(ledger, pi.Ledger().named("table 2"))
        release(server)
        release(server)
    release(server_of(ledger))  # outside of a fit
    expected = ['fit over sites, described as "table 2: OLS: y ~ x"', "fit over sites"]
    for fits in (ledger.fits, read_site_ledger(tmp_path / "north.ledger").ledger.fits):
        assert [fit.subject for fit in fits] == expected
        assert [len(fit.entries) for fit in fits] == [2, 1]
    ledger.close()
    with SiteLedger.open(tmp_path / "north.ledger") as opened:
        assert [fit.subject for fit in opened.fits] == expected
    assert f"{expected[0]}: epsilon" in shown(tmp_path / "north.ledger")
    facts = json.loads(shown(tmp_path / "north.ledger", "--json"))
    assert [fit["subject"] for fit in facts["fits"]] == expected


class Reserving(InProcessFederation):
    """Sites that count the reservations which describe the fit, while they hold."""

    described = 0

    def ask(self, query, sites=None):
        replies = super().ask(query, sites)
        if query.op == Requests.RESERVE:
            held = [one for site in self._sites.values() for one in site._journal.reservations]
            self.described += sum("y ~ " in one.purpose for one in held)
        return replies


@pytest.mark.parametrize("trust", ["server", "secure-sum"])
def test_a_fit_describes_itself_to_every_site(trust):
    sites = sites_of(NAMES[:3])
    federation = Reserving(sites)
    model = model_of(federation, trust)
    fit = model.fit(epsilon=8.0, delta=1e-5, optimizer=pi.Newton(rounds=1), rng=0)
    for site in sites.values():
        (charged,) = site.ledger.fits
        assert "described as" in charged.subject
        assert "y ~ " in charged.subject
        assert len(charged.entries) >= 1
    assert fit.nobs
    assert federation.described == 3


def test_a_text_cannot_pass_for_another_line(ledger, tmp_path):
    with charged_for(FORGED):
        release(server_of(ledger))
    (fit,) = ledger.fits
    text = fit.subject.partition('described as "')[2]
    assert text.endswith('..."')
    assert len(text) <= LONGEST_SUBJECT + 1
    assert text.count('"') == 1
    assert text[:-1].isprintable()
    lines = shown(tmp_path / "north.ledger").splitlines()
    assert sum(" UTC  " in line for line in lines) == 1
    assert sum("\x1b" in line or "\u202e" in line for line in lines) == 0
    assert "<b>" not in ledger.fits._repr_html_()


def test_a_site_shortens_what_a_query_states():
    query = Query("squared_residuals", purpose=FORGED)
    assert query.purpose == stated_text(FORGED)
    text, arrays = query.pack()
    header = json.loads(text) | {"purpose": FORGED}
    assert Query.unpack(json.dumps(header), arrays).purpose == stated_text(FORGED)
    assert "purpose" not in Query("squared_residuals").pack()[0]
    for wrong in (3, None, "\ud800"):
        with pytest.raises(pi.errors.PrivinfError):
            Query("squared_residuals", purpose=wrong)


def test_no_digest_and_no_head_depends_on_the_text():
    plain, described = Query("squared_residuals"), Query("squared_residuals", purpose="OLS: y ~ x")
    assert plain.digest == described.digest
    assert plain.subject == described.subject
    assert described.charged({"a": 1}).purpose == "OLS: y ~ x"


def test_noise_does_not_depend_on_the_text():
    releases = []
    for subject in ("OLS: y ~ x", "another"):
        policy = SitePolicy(trusted_server=True, simulation=True)
        site = Site(ROWS, DESIGN, policy=policy)
        server = TrustedServer(InProcessFederation({"north": site}), rng=3)
        with charged_for(subject):
            releases.append(release(server).mean)
    assert releases[0] == releases[1]


def test_the_head_of_a_ledger_does_not_depend_on_the_text(ledger, tmp_path):
    """The text is in the private part of the line, which has no tag; a changed one is read as it is."""
    with charged_for("OLS: y ~ x"):
        release(server_of(ledger))
    head = ledger.head
    ledger.close()
    path = tmp_path / "north.ledger"
    content = path.read_bytes()
    assert content.count(b'"stated": "OLS: y ~ x"') == 1
    path.write_bytes(content.replace(b'"stated": "OLS: y ~ x"', b'"stated": "OLS: y ~ z"'))
    with SiteLedger.open(path) as opened:
        assert opened.head == head
        assert opened.fits[0].subject.endswith('"OLS: y ~ z"')
    for damaged in (b'"stated": 17', b'"stated": [[]]'):
        path.write_bytes(content.replace(b'"stated": "OLS: y ~ x"', damaged))
        with pytest.raises(StorageError, match="restore"):
            read_site_ledger(path)
        with pytest.raises(StorageError, match="restore"):
            SiteLedger.open(path)
    path.write_bytes(content.replace(b'{"stated": "OLS: y ~ x"}', b"17"))
    with pytest.raises(StorageError, match="restore"):
        read_site_ledger(path)
