"""Whether noise can be drawn twice: repeats at a trusted server, and restarts of a fit from its folder."""

import contextlib
import inspect
import shutil
from dataclasses import replace

import numpy as np
from scipy.special import expit

import privinf as pi
from privinf.errors import PrivinfError
from privinf.federation import InProcessFederation, Site, SitePolicy, TrustedServer
from privinf.schema import Design

OPEN = SitePolicy(trusted_server=True, simulation=True)
ARGS = {"columns": np.array([0, 1]), "bound": 2.0}
BUDGET = {"epsilon": 2.0, "delta": 1e-6}


def rows_of(count, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(0.0, 0.8, (count, 2))
    return np.clip(X.sum(axis=1), -3.0, 3.0), X


def nothing(count):
    """Rows that add nothing to a sum."""
    return np.zeros(count), np.zeros((count, 2))


def federation_of(*, second=None, policy=OPEN, **options):
    design = Design.from_arrays(["a", "b"], bounds=[(-2, 2)] * 2, y_bounds=(-3, 3))
    tables = {"north": rows_of(60, 0), "south": rows_of(90, 1) if second is None else second}
    sites = {name: Site(table, design, policy=policy) for name, table in tables.items()}
    return InProcessFederation(sites, **options)


def again(server, planned):
    """Repeat a release; the version before asked its caller whether it was charged, and believed him."""
    told = {"charged": True} if "charged" in inspect.signature(server.release).parameters else {}
    return server.release(planned, **told)


def repeats(count, rng=None):
    """Return the distinct answers to one question that is asked so often, and the ledger's lines."""
    server = TrustedServer(federation_of(), rng=rng)
    planned = server.planned("column_sums", ARGS, mu=0.1, label="sums")
    first = server.release(planned)
    answers = [first, *(again(server, planned) for _ in range(count - 1))]
    return {found.values.tobytes() for found in answers}, len(server.ledger)


def refused_repeat():
    """Return with which error a repeat is refused; nothing where it is not."""
    server = TrustedServer(federation_of())
    planned = server.planned("column_sums", ARGS, mu=0.1, label="sums")
    server.release(planned)
    try:
        server.release(planned)
    except PrivinfError as error:
        return type(error).__name__
    return ""


def answers_of_changed_rows():
    """Return how many answers one line pays for when rows are changed between two servers of one key."""
    first = TrustedServer(federation_of())
    planned = first.planned("column_sums", ARGS, mu=0.1, label="sums")
    answers = {first.release(planned).values.tobytes()}
    second = TrustedServer(federation_of(second=nothing(90)), ledger=first.ledger)
    second._noise.memory = first._noise.memory
    with contextlib.suppress(PrivinfError):
        answers.add(second.release(planned).values.tobytes())
    assert len(first.ledger) == 1
    return len(answers)


def z_of(key, federation, *, label="sums", mu=0.5, missing="raise", questions=1):
    """Return the last question's noise over its scale, from a server of a key that remembers nothing."""
    from privinf.federation.server_noise import NoiseMemory  # not in the code before, which is audited too

    server = TrustedServer(federation, missing=missing)
    server._noise.memory = NoiseMemory(key, secure=True)
    found = [server.vector_sum("column_sums", ARGS, mu=mu, label=label) for _ in range(questions)][-1]
    exact = server.vector_sum("column_sums", ARGS, mu=np.inf, label="exact")
    return (found.values - exact.values) / found.scale


def shared_noise(key):
    """Return which answers of one key have the same noise: none should."""
    whole = z_of(key, federation_of(second=nothing(90)))
    others = {
        "another sum": z_of(key, federation_of()),
        "another roster": z_of(
            key, federation_of(second=nothing(90), drop_outs={"south": {1, 2}}), missing="continue"
        ),
        "another label": z_of(key, federation_of(second=nothing(90)), label="more"),
        "another price": z_of(key, federation_of(second=nothing(90)), mu=0.25),
        "another place": z_of(key, federation_of(second=nothing(90)), questions=2),
    }
    return [name for name, z in others.items() if np.allclose(z, whole, atol=1e-3)]


def model_of(trust="server", ledger=None):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (900, 2))
    y = (rng.uniform(size=900) < expit(X @ [1.0, -0.5])).astype(float)
    sites = [(y[i::3], X[i::3]) for i in range(3)]
    return pi.FederatedGLM.from_arrays(
        sites, bounds=[(-1, 1)] * 2, family="binomial", trust=trust, ledger=ledger
    )


def over(model, ledger):
    """Return a model of another coordinator over the same sites."""
    other = pi.FederatedGLM.__new__(pi.FederatedGLM)
    other._rows, other._trust, other.ledger = model._rows, model._trust, ledger
    return other


class Keeping:
    """A federation that keeps what the folder holds at every question: somebody's backups."""

    def __init__(self, inner, folder, kept):
        self.inner, self.folder, self.kept = inner, folder, kept

    @property
    def sites(self):
        return self.inner.sites

    def ask(self, query, sites=None):
        for path in self.folder.glob("*-asked.npz"):
            shutil.copy2(path, self.kept / path.name)
        return self.inner.ask(query, sites)


def restarts(count, folder, *, trust="server", new_ledger=False, seed=0):
    """Return the distinct estimates of a fit that is started again so often, its first result, its ledger.

    Each time a random subset of the questions is brought back and a random subset of the answers is deleted.
    Secure sums have all questions back: what is asked in new words is new noise there, and newly charged.
    """
    where, kept = folder / "fit", folder / "kept"
    where.mkdir()
    kept.mkdir()
    model = model_of(trust)
    model._rows = replace(model._rows, federation=Keeping(model._rows.federation, where, kept))
    first = model.fit(**BUDGET, checkpoint=where)
    rng, estimates = np.random.default_rng(seed), {first.params.to_numpy().tobytes()}
    for _ in range(count):
        for path in sorted(kept.glob("*.npz")):
            if trust == "secure-sum" or rng.random() < 0.5:
                shutil.copy2(path, where / path.name)
        for path in sorted(where.glob("?????.npz")):
            if rng.random() < 0.5:
                path.unlink()
        ledger = pi.Ledger() if new_ledger else model.ledger
        estimates.add(over(model, ledger).fit(**BUDGET, checkpoint=where).params.to_numpy().tobytes())
    return estimates, first, model.ledger
