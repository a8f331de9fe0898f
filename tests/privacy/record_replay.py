"""Record what a fit releases on one table, force the same outputs on a neighbour, and compare what is public.

Every place where noise meets data is watched: Gaussian noise of a lattice source, randomized response, the
picks of peeling and their Laplace values, examples with Laplace noise. A recording keeps the noise-free input
beside the output. On the neighbour the mechanism runs as ever, so that its warnings and errors are seen, and
the recorded output takes the place of its own. What differs then is a function of rows that no noise has
covered; and the distance of the two inputs, over the noise that was really drawn, is what the release costs
on this pair, exactly.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import re
import types
import warnings
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pytest

from privinf.accounting import (
    ConcentratedLoss,
    GaussianLoss,
    Ledger,
    LedgerEntry,
    PrivacyReport,
    PureLoss,
    entries,
    pure_rho,
)
from privinf.accounting.composition import ParallelTotal, Total, compose
from privinf.errors import PrivinfError
from privinf.federation import InProcessFederation, Site, rounds
from privinf.federation.secure import site as site_masking
from privinf.federation.secure.keys import IdentityKey
from privinf.mechanisms import selection as noisy_top_k
from privinf.mechanisms.local import examples as local_examples
from privinf.mechanisms.local.responses import RandomizedResponse
from privinf.mechanisms.rows import EncodedRows, Rows
from privinf.mechanisms.selection import Peeling
from privinf.mechanisms.statistics.block import SiteBlock
from privinf.noise import LatticeNoise, OpenDPNoise, entropy, grid_step

HOLDERS = (Rows, EncodedRows, SiteBlock, Site, InProcessFederation)
SLACK = 1.0 + 1e-9


# ---- releases


@dataclass
class Release:
    """One meeting of noise and data.

    Attributes
    ----------
    mechanisms : set of str
        What a ledger line may call it.
    law : mapping
        What the line must state of the noise, from the calls of the source.
    inputs, output
    moved : float or list of float
        After a replay: the l2 distance of the inputs over the sd, or worst log-odds of discrete outputs.
    """

    mechanisms: frozenset[str]
    law: dict[str, float]
    inputs: Any
    output: Any
    moved: Any = None

    def belongs(self, line: LedgerEntry) -> bool:
        """Say whether a ledger line states this noise."""
        noise = dict(line.noise)
        if line.mechanism not in self.mechanisms:
            return False
        if noise.get("grid"):
            noise["steps"] = noise["scale"] / noise["grid"]
        if "keep" in noise:
            noise["lie"] = 1.0 - noise["keep"]
        return all(
            name in noise and math.isclose(noise[name], value, rel_tol=1e-9, abs_tol=1e-14)
            for name, value in self.law.items()
        )

    def spent(self, kind: type) -> Any:
        """Return what the pair costs, in the kind of loss that a line states."""
        if "gaussian" in self.mechanisms:
            return GaussianLoss(self.moved)
        if kind is PureLoss:
            return PureLoss(math.fsum(self.moved))
        if "gumbel peeling" in self.mechanisms:  # of bounded range
            return ConcentratedLoss(math.fsum(move * move / 8.0 for move in self.moved))
        return ConcentratedLoss(math.fsum(map(pure_rho, self.moved)))


GAUSSIAN = frozenset({"gaussian", "modulated gaussian"})


class Tape:
    """Releases of one run in order; a replay takes their outputs and measures how far inputs have moved."""

    def __init__(self) -> None:
        self.releases: list[Release] = []
        self.replaying = False
        self.differences: list[str] = []
        self._next = 0
        self._draws: list[tuple[str, float]] | None = None
        self._shared: float | None = None
        self.sites: list[Site] = []

    @contextlib.contextmanager
    def running(self, *, replay: bool = False) -> Iterator[Tape]:
        """Watch the sources of noise: record what they release, or force it."""
        self.replaying, self._next = replay, 0
        with pytest.MonkeyPatch.context() as patch:
            for name in ("perturb", "gaussian_steps", "uniform"):
                patch.setattr(LatticeNoise, name, self._around(getattr(LatticeNoise, name), name))
            steps = self._around(OpenDPNoise.gaussian_steps, "gaussian_steps")
            patch.setattr(OpenDPNoise, "gaussian_steps", steps)
            patch.setattr(Site, "__init__", self._site(Site.__init__))
            for name in ("bernoulli", "integers", "gumbel", "laplace"):
                patch.setattr(LatticeNoise, name, self._noted(getattr(LatticeNoise, name), name))
            patch.setattr(RandomizedResponse, "respond", self._around(RandomizedResponse.respond, "respond"))
            patch.setattr(noisy_top_k, "_peel", self._around(noisy_top_k._peel, "picks"))
            patch.setattr(Peeling, "_values", self._laplace_alone(Peeling._values))
            rows = self._around(local_examples.perturb_laplace, "laplace_rows")
            patch.setattr(local_examples, "perturb_laplace", rows)
            patch.setattr(site_masking, "source_of", self._source_of(site_masking.source_of))
            yield self
        if replay and self._next < len(self.releases):
            self.differences.append("the neighbour asks for fewer releases")

    # ---- the seams

    def _around(self, original: Callable[..., Any], name: str) -> Callable[..., Any]:
        handle = getattr(self, f"_{name}")

        @functools.wraps(original)
        def watched(*given: Any) -> Any:
            if self._draws is not None:  # a part of a release that is watched as a whole
                return original(*given)
            self._draws = []
            before = [np.array(part) if isinstance(part, np.ndarray) else part for part in given]
            try:
                output = original(*given)
                return handle(output, self._draws, *before)
            finally:
                self._draws = None

        return watched

    def _laplace_alone(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Watch the values of Laplace peeling; those of Gumbel peeling have Gaussian noise of the source."""
        watched = self._around(original, "values")

        @functools.wraps(original)
        def either(peeling: Peeling, *given: Any) -> Any:
            return (watched if peeling.method == "laplace" else original)(peeling, *given)

        return either

    def _noted(self, original: Callable[..., Any], name: str) -> Callable[..., Any]:
        @functools.wraps(original)
        def watched(source: LatticeNoise, law: float, size: Any) -> Any:
            assert self._draws is not None, f"{name} meets data at a place that is not watched"
            self._draws.append((name, float(law)))
            return original(source, law, size)

        return watched

    def _site(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def watched(site: Site, *given: Any, **named: Any) -> None:
            original(site, *given, **named)
            self.sites.append(site)

        return watched

    def _source_of(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def watched(terms: Any, name: str) -> Any:
            self._shared = math.sqrt(terms.carriers)  # noise of the honest alone
            return original(terms, name)

        return watched

    def _perturb(self, output: Any, draws: Any, source: Any, values: Any, scale: float) -> Any:
        steps = np.rint(np.asarray(values, dtype=np.float64) / grid_step(scale))
        law = {"scale": scale, "grid": grid_step(scale)}
        return self._gaussian(output, law, steps, scale / grid_step(scale))

    def _gaussian_steps(self, output: Any, draws: Any, source: Any, steps: Any, sigma: float) -> Any:
        sigma, self._shared = sigma * (self._shared or 1.0), None
        return self._gaussian(output, {"steps": sigma}, np.asarray(steps, dtype=np.float64), sigma)

    def _gaussian(self, output: Any, law: dict[str, float], steps: Any, sigma: float) -> Any:
        def distance(first: Any, second: Any) -> float:
            return float(np.linalg.norm(np.ravel(first - second))) / sigma

        return self._meet(GAUSSIAN, law, steps, output, distance)

    def _uniform(self, output: Any, draws: Any, source: Any, size: Any) -> Any:
        # Phases, which are drawn without data: a release of nothing.
        return self._meet(frozenset({"phases"}), {}, np.zeros(np.shape(output)), output, lambda *_: 0.0)

    def _respond(
        self, output: Any, draws: Any, response: Any, codes: Any, source: Any, lies: Any = None
    ) -> Any:
        named = dict(draws)
        lie, others = named.get("bernoulli", 0.0), named.get("integers", 1.0)
        odds = math.inf if lie == 0.0 else max(abs(math.log1p(-lie) - math.log(lie / others)), 0.0)

        def worst(first: Any, second: Any) -> list[float]:
            return [odds] * int((first != second).sum())

        law = {"lie": lie, "levels": others + 1.0}
        return self._meet(frozenset({"randomized response"}), law, np.asarray(codes), output, worst)

    def _picks(self, output: Any, draws: Any, scores: Any, peeling: Peeling, source: Any) -> Any:
        (scale,) = {law for _, law in draws} or {0.0}
        kinds = {kind for kind, _ in draws}

        def worst(first: Any, second: Any) -> list[float]:
            return pick_losses(first, second, output_of, scale)

        recorded = self.releases[self._next].output if self._can_replay() else output
        output_of = recorded
        name = frozenset(f"{kind} peeling" for kind in kinds)
        return self._meet(name, {"scale": scale, "picks": float(peeling.k)}, scores, output, worst)

    def _values(self, output: Any, draws: Any, peeling: Peeling, chosen: Any, source: Any) -> Any:
        (scale,) = {law for _, law in draws}

        def worst(first: Any, second: Any) -> list[float]:
            return (np.abs(np.ravel(first - second)) / scale).tolist()

        return self._meet(frozenset({"laplace"}), {"scale": scale}, chosen, output, worst)

    def _laplace_rows(self, output: Any, draws: Any, values: Any, scale: float, source: Any) -> Any:
        assert draws == [("laplace", scale)]
        grid = grid_step(scale)
        steps = np.rint(np.asarray(values, dtype=np.float64) / grid)

        def worst(first: Any, second: Any) -> list[float]:
            return (np.abs(np.ravel(first - second)) * (grid / scale)).tolist()

        return self._meet(frozenset({"laplace"}), {"scale": scale, "grid": grid}, steps, output, worst)

    # ---- the tape itself

    def _can_replay(self) -> bool:
        return self.replaying and self._next < len(self.releases)

    def _meet(
        self,
        mechanisms: frozenset[str],
        law: dict[str, float],
        inputs: Any,
        output: Any,
        distance: Callable[[Any, Any], Any],
    ) -> Any:
        if not self.replaying:
            self.releases.append(Release(mechanisms, law, inputs, np.array(output, copy=True)))
            return output
        if not self._can_replay():
            self.differences.append("the neighbour asks for more releases")
            return output
        kept, self._next = self.releases[self._next], self._next + 1
        same = kept.mechanisms == mechanisms and kept.law == law and kept.inputs.shape == inputs.shape
        if not same:
            self.differences.append(f"release {self._next} of the neighbour is another: {sorted(mechanisms)}")
            return output
        kept.moved = distance(kept.inputs, inputs)
        return kept.output.copy()


def pick_losses(first: Any, second: Any, selected: Any, scale: float) -> list[float]:
    """Return the range of the log-ratio of each pick, over all that it could have picked."""
    if scale == 0.0:
        return [math.inf]
    found = []
    flat = [np.reshape(scores, (-1, scores.shape[-1])).copy() for scores in (first, second)]
    for one, other, chosen in zip(*flat, np.reshape(selected, (len(flat[0]), -1)), strict=True):
        for pick in chosen:
            left = np.isfinite(one) & np.isfinite(other)
            change = (other[left] - one[left]) / scale
            found.append(float(np.ptp(change)))
            one[pick] = other[pick] = -np.inf
    return found


# ---- what a run shows


ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(\+00:00)?")
ADDRESS = re.compile(r"0x[0-9a-f]+")
SILENT = (types.ModuleType, types.BuiltinFunctionType, type)
TOP = 2  # depth of what a run returns
# The clock, and the fingerprint of a server's own random key.
UNLIKE = ("time", "key")
LABELS = ("columns", "index", "name", "names", "attrs")
# Methods that write files or draw pictures of what the walk has seen already.
UNCALLED = {"save", "plot", "to_arviz", "draws", "load", "remove_data"}


def told(text: str) -> str:
    """Return a text without ids of accounts, the clock and places in memory."""
    return ADDRESS.sub("<address>", TIME.sub("<time>", ID.sub("<id>", text)))


def shown(thing: Any) -> dict[str, Any]:
    """Return everything that can be reached from an object, by path: what it holds, what members say."""
    found: dict[str, Any] = {}
    _show(thing, type(thing).__name__, found, {}, 0)
    return found


def _show(thing: Any, path: str, found: dict[str, Any], seen: dict[int, Any], depth: int) -> None:
    if isinstance(thing, HOLDERS):
        raise AssertionError(f"{path} holds rows")
    if thing is None or isinstance(thing, (bool, int, float, complex, np.generic)):
        found[path] = repr(thing)
    elif isinstance(thing, (str, bytes)):
        found[path] = told(thing if isinstance(thing, str) else repr(thing))
    elif isinstance(thing, np.ndarray) and thing.dtype != object:
        found[path] = (str(thing.dtype), thing.shape, thing.tobytes())
    elif isinstance(thing, types.FunctionType):
        found[path] = thing.__qualname__
    elif not isinstance(thing, SILENT) and id(thing) not in seen and depth < 16:
        seen[id(thing)] = thing  # kept alive, so that no id is used twice
        for name, part in _parts(thing, depth):
            _show(part, f"{path}{name}", found, seen, depth + 1)


def _parts(thing: Any, depth: int) -> Iterator[tuple[str, Any]]:
    if isinstance(thing, np.ndarray):
        yield from ((f"[{i}]", part) for i, part in enumerate(thing.ravel()))
    elif isinstance(thing, (pd.DataFrame, pd.Series, pd.Index)):
        yield ".values", np.asarray(thing)
        yield from ((f".{name}", getattr(thing, name)) for name in LABELS if hasattr(thing, name))
    elif isinstance(thing, Mapping):
        yield ".keys", [str(key) for key in thing]
        yield from ((f"[{key!r}]", value) for key, value in thing.items() if key not in UNLIKE)
    elif isinstance(thing, (list, tuple)):
        yield from ((f"[{i}]", part) for i, part in enumerate(thing))
    elif isinstance(thing, Set):
        yield ".sorted", sorted(map(repr, thing))
    elif isinstance(thing, Ledger):
        yield ".entries", thing.entries
    elif isinstance(thing, functools.partial):
        yield from ((".func", thing.func), (".args", thing.args), (".keywords", thing.keywords))
    else:
        yield from _members(thing, depth)


def _members(thing: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """Yield attributes, public properties with the errors that they raise, and methods without arguments."""
    state = dict(getattr(thing, "__dict__", {}))
    for kind in type(thing).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(thing, name):
                state.setdefault(name, getattr(thing, name))
    if isinstance(thing, LedgerEntry):
        state.pop("time")
    yield from ((f".{name}", value) for name, value in list(state.items()))
    if not type(thing).__module__.startswith("privinf.") or (
        isinstance(thing, PrivacyReport) and depth > TOP + 2
    ):
        return
    for name in dir(type(thing)):
        if name.startswith("_") or name in state or name in UNCALLED:
            continue
        if not callable(getattr(type(thing), name, None)):
            yield f".{name}", asked(functools.partial(getattr, thing, name))
        elif depth == TOP and (arguments := _free(getattr(thing, name))) is not None:
            yield f".{name}()", asked(functools.partial(getattr(thing, name), **arguments))
    if depth == TOP:
        yield from ((".repr", repr(thing)), (".str", str(thing)))


def _free(method: Any) -> dict[str, Any] | None:
    """Return arguments for a method that needs none: a seed where it takes one; None if it needs others."""
    try:
        parameters = inspect.signature(method).parameters.values()
    except (TypeError, ValueError):
        return None
    if inspect.isclass(getattr(method, "__self__", None)):
        return None
    needed = [
        p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    ]
    if needed:
        return None
    names = {p.name for p in parameters}
    return {name: value for name, value in (("rng", 0), ("draws", 99)) if name in names}


def asked(question: Callable[[], Any]) -> Any:
    """Return what a member gives, or the error that it raises as texts."""
    try:
        return question()
    except Exception as error:
        return raised(error)


def raised(error: BaseException | None) -> list[str]:
    """Return types and texts of an error and of what it hangs together with."""
    if error is None:
        return []
    chain = [f"{type(error).__module__}.{type(error).__name__}: {told(str(error))}"]
    return chain + [f"from {text}" for text in raised(error.__cause__ or error.__context__)]


@dataclass
class Outcome:
    """What a run shows to whoever reads everything: values by path, warnings, the ledger's lines."""

    values: dict[str, Any]
    warned: list[str]
    ledger: Ledger
    refused: bool = False
    foreign: list[str] = field(default_factory=list)

    def differences(self, other: Outcome) -> list[str]:
        """Return the paths at which two outcomes differ; no value."""
        found = [
            path
            for path in sorted(self.values.keys() | other.values.keys())
            if self.values.get(path) != other.values.get(path)
        ]
        if self.warned != other.warned:
            found.append(f"warnings: {sorted(set(self.warned) ^ set(other.warned))}")
        return found + self.foreign + other.foreign


Run = Callable[[int, Ledger], Any]


@contextlib.contextmanager
def known_entropy(seed: int) -> Iterator[None]:
    """Let noise, its keys, sessions and lines take their bytes from a generator: alike in both worlds."""
    words = np.random.default_rng(seed).bytes
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entropy, "os", types.SimpleNamespace(urandom=words))
        patch.setattr(entropy, "system_bytes", words)
        for place in (rounds, entries):
            patch.setattr(place, "uuid4", lambda: UUID(bytes=words(16), version=4))
        made = IdentityKey.__init__

        def identity(key: IdentityKey, secret: bytes | None = None) -> None:
            made(key, words(32) if secret is None else secret)

        patch.setattr(IdentityKey, "__init__", identity)
        yield


def observe(run: Run, world: int, *, seed: int = 0, account: Callable[[], Ledger] = Ledger) -> Outcome:
    """Return the outcome of a run in one of two worlds; an error is an outcome like others."""
    ledger, refused, foreign = account(), False, []
    with known_entropy(seed), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            found: Any = run(world, ledger)
        except Exception as error:
            found, refused = {"raised": raised(error)}, True
            if not isinstance(error, PrivinfError) or error.__context__ or error.__cause__:
                foreign.append(f"a foreign exception: {type(error).__name__}")
        values = shown([found if isinstance(found, tuple) else (found,), ledger])
    texts = [f"{one.category.__name__}: {told(str(one.message))}" for one in warned]
    return Outcome(values, texts, ledger, refused, foreign)


# ---- the audit


@dataclass
class Audit:
    """What record and replay found of one run on one pair.

    Attributes
    ----------
    differences : list of str
        Paths of what differs between the neighbours, and releases that do not match.
    overspent : list of str
        Releases and totals that cost more on the pair than their ledger lines say.
    share : float
        Largest share of a line's loss that the pair spends: near 1 where the pair is the worst.
    releases, refused, ledger
        Of the recorded run.
    """

    differences: list[str] = field(default_factory=list)
    overspent: list[str] = field(default_factory=list)
    share: float = 0.0
    releases: int = 0
    refused: bool = False
    ledger: Ledger = field(default_factory=Ledger)

    @property
    def complaints(self) -> list[str]:
        """Return all that must not be."""
        return self.differences + self.overspent


def audit(run: Run, *, allowed: float = 1.0, seed: int = 0, account: Callable[[], Ledger] = Ledger) -> Audit:
    """Record a run in world 0, force its releases in world 1, and compare; `account` makes its ledgers.

    `allowed` multiplies what a line may cost on the pair: 4, twice the mu, where the line is about a record
    that is replaced by nothing and the pair replaces it by another.
    """
    tape = Tape()
    with tape.running():
        here = observe(run, 0, seed=seed, account=account)
    with tape.running(replay=True):
        there = observe(run, 1, seed=seed, account=account)
    found = Audit(here.differences(there) + tape.differences, refused=here.refused, ledger=here.ledger)
    found.releases = sum(release.mechanisms != {"phases"} for release in tape.releases)
    if not tape.differences:
        books = [site.ledger for site in tape.sites[: len(tape.sites) // 2]]
        _price(tape.releases, here, books, found, allowed * SLACK)
    return found


def _price(releases: list[Release], here: Outcome, books: list[Ledger], found: Audit, allowed: float) -> None:
    """Compare what releases cost on the pair with the lines that state their noise, and with the totals.

    `books` are the ledgers of sites; the record that differs is at one of them. A curator's own table answers
    without them.
    """
    lines = here.ledger.entries
    books = [] if all(line.trust == "central" for line in lines) else books
    groups: dict[tuple[int, ...], list[Release]] = {}
    for release in releases:
        if release.mechanisms != {"phases"}:
            matching = tuple(i for i, line in enumerate(lines) if release.belongs(line))
            groups.setdefault(matching, []).append(release)
    for i, line in enumerate(lines):
        if not here.refused and not any(i in matching for matching in groups):
            found.overspent.append(f"line {line.label!r}: nothing was drawn for it")
    spent = []
    for matching, made in groups.items():
        if not matching:
            found.overspent.append(f"{len(made)} release(s) {sorted(made[0].mechanisms)} in no ledger line")
            continue
        stated = [lines[i].loss for i in matching]
        losses = [release.spent(type(stated[0])) for release in made]
        spent += losses
        share = _share(compose(losses), compose(stated))
        found.share = max(found.share, share)
        if share > allowed:
            found.overspent.append(f"line {lines[matching[0]].label!r}: {share:.4g} of what it states")
    for name, ledgers in (("the", [here.ledger]), ("any site's", books)):
        worlds = [world for ledger in ledgers for world in _worlds(ledger)]
        least = min((_share(compose(spent), world) for world in worlds), default=0.0)
        if least > allowed:
            found.overspent.append(f"everything together: {least:.4g} of {name} ledger's total")


def _worlds(ledger: Ledger) -> tuple[Total, ...]:
    total = ledger.total()
    return total.worlds if isinstance(total, ParallelTotal) else (total,)


def _share(spent: Total, stated: Total) -> float:
    """Return the largest share that one loss takes of another, kind by kind.

    A Gaussian loss is worth its rho where only rho is stated, never the other way round.
    """
    return max(
        _ratio(spent.concentrated, stated.concentrated),
        _ratio(spent.mu2 / 2.0 + spent.concentrated, stated.mu2 / 2.0 + stated.concentrated),
        _ratio(math.fsum(spent.pure), math.fsum(stated.pure)),
    )


def _ratio(part: float, whole: float) -> float:
    return 0.0 if part == 0.0 else (math.inf if whole == 0.0 else part / whole)
