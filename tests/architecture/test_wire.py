"""Texts that enter digests, keys, ledger lines and files stand in `privinf.wire`, and are never changed."""

from __future__ import annotations

import ast
import json
import math
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path, PurePosixPath
from string import Formatter
from typing import get_args

import numpy as np
import pytest
from support.tree import house_tree

import privinf as pi
from privinf import release_kinds, wire
from privinf.accounting import GaussianLoss, LedgerEntry, Sensitivity, losses
from privinf.cli.releases import ReleaseOptions
from privinf.errors import ArgumentError
from privinf.federation.checkpoint import fit_digest
from privinf.federation.messages import QUERY_FIELDS
from privinf.glm.newton import Block
from privinf.glm.plan import FitPlan
from privinf.glm.queries import LeastSquaresOptions
from privinf.glm.sums import Clients
from privinf.mechanisms.catalogue import SHIPPED, SITE_OPS
from privinf.typing import Relation, TrustModel

LIST = Path(__file__).with_name("wire_constants.txt")
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

# ---- the list


def namespaces() -> dict[str, dict[str, str | bytes]]:
    """Return the constants of every namespace of `wire`, by name."""
    found = {}
    for name, value in vars(wire).items():
        if isinstance(value, type) and value.__module__ == wire.__name__ and value is not wire.PlanClass:
            found[name] = {key: text for key, text in vars(value).items() if not key.startswith("_")}
    return found


def of_other_modules() -> Iterator[str]:
    """Yield names that are hashed or stored, and stand as names in the code of other modules."""
    for name in sorted(SHIPPED):
        op = SITE_OPS[name]
        yield f"statistic {name}: version {op.version}"
        yield from (f"statistic {name}: argument {word}" for word in sorted({*op.arguments, *op.own}))
    unhashed = ["purpose"]  # of no digest: tests/federation/test_described_fits.py
    yield f"fields of a question: {' '.join(name for name in QUERY_FIELDS if name not in unhashed)}"
    yield f"fields of a question, of no digest: {' '.join(unhashed)}"
    yield f"fields of a ledger line: {' '.join(a_line().to_dict())}"
    yield f"losses: {' '.join(losses._KINDS)}"
    yield f"relations: {' '.join(get_args(Relation))}"
    yield f"trust: {' '.join(get_args(TrustModel))}"
    for name, kind in release_kinds._KINDS.items():
        yield from (f"release {name}: array {word}" for word in sorted({*kind.arrays, *kind.more_arrays}))
        yield from (
            f"release {name}: law {word}" for word in sorted(release_kinds._entries(kind.noise_model))
        )


def a_line() -> LedgerEntry:
    return LedgerEntry(
        mechanism=wire.Mechanisms.GAUSSIAN,
        label="a label",
        unit="record",
        relation="replace-one",
        trust="central",
        loss=GaussianLoss(1.0),
        source=wire.NoiseSources.LATTICE,
        secure=True,
        sensitivity=Sensitivity(norm=wire.Norms.L2, value=1.0, derivation="why"),
    )


def constants() -> list[str]:
    """Return the lines of the list as the code has them."""
    lines = [
        f"{space}.{name} = {text!r}" for space, held in namespaces().items() for name, text in held.items()
    ]
    lines.append(f"ASSUMED_LATER = {list(wire.ASSUMED_LATER)}")
    lines.append(f"TRUST_IN_DIGESTS = {dict(wire.TRUST_IN_DIGESTS)}")
    for plan in wire.PLAN_CLASSES.values():
        lines.append(f"plan {plan.name}: {' '.join(filter(None, plan.fields.values()))}")
    lines.append(f"options of a release: {' '.join(wire.RELEASE_OPTIONS.values())}")
    return [*lines, *of_other_modules()]


def test_constants_are_those_of_the_list():
    listed, now = LIST.read_text(encoding="utf-8").splitlines(), constants()
    lost = [line for line in listed if line not in now]
    new = [line for line in now if line not in listed]
    assert lost == [], "these texts are hashed or stored: they are never changed or removed"
    assert new == [], f"add these lines to {LIST.name}"
    assert len(set(listed)) == len(listed)


@pytest.mark.parametrize("space", namespaces())
def test_a_namespace_holds_texts_alone_each_once(space):
    texts = list(namespaces()[space].values())
    assert texts
    assert all(isinstance(text, (str, bytes)) and text for text in texts)
    assert len(set(texts)) == len(texts)


def test_statistics_are_those_of_the_catalogue():
    assert set(namespaces()["Statistics"].values()) == SHIPPED


# ---- texts of plans

SPENT = {"mu": 2.5, "rounds_mu": 0.0, "final_mu": 2.5, "delta": 0.001, "public_seed": 0, "clients": None}
FIRST_ORDER = "epochs=5, batches=20, step=1.0, clip=4.0, average=0.5, final_share=0.8"
DOMES = "variant='repaired', centre=False, precondition=False, probes='unbiased', adam=False"
# Of instances, what `repr` gave when digests of fits were first made.
PLAN_TEXTS = [
    (pi.Newton(), "Newton(rounds=3, final_share=0.8)"),
    (pi.Newton(rounds=1, final_share=np.float64(0.5)), "Newton(rounds=1, final_share=np.float64(0.5))"),
    (pi.DPSGD(), f"DPSGD({FIRST_ORDER})"),
    (
        pi.DPSGD(epochs=np.int64(2), batches=5, step=2, average=0.0),
        "DPSGD(epochs=np.int64(2), batches=5, step=2, clip=4.0, average=0.0, final_share=0.8)",
    ),
    (pi.DPAdam(), f"DPAdam({FIRST_ORDER.replace('step=1.0', 'step=0.02')})"),
    (
        pi.DPAdam(clip=1e-05, epochs=7),
        "DPAdam(epochs=7, batches=20, step=0.02, clip=1e-05, average=0.5, final_share=0.8)",
    ),
    (pi.RandomSketch(), f"RandomSketch({FIRST_ORDER}, k=40)"),
    (pi.RandomSketch(k=3, batches=1), f"RandomSketch({FIRST_ORDER.replace('batches=20', 'batches=1')}, k=3)"),
    (pi.DOME(), f"DOME({FIRST_ORDER}, k=40, most_learned=5, energy=0.9, {DOMES})"),
    (
        pi.DOME(k=8, most_learned=2, centre=True, probes="orthonormal", adam=False),
        f"DOME({FIRST_ORDER}, k=8, most_learned=2, energy=0.9, variant='repaired', centre=True, "
        "precondition=False, probes='orthonormal', adam=False)",
    ),
    (Clients(rows=12), "Clients(rows=12, clip=None)"),
    (Clients(rows=3, clip=0.25), "Clients(rows=3, clip=0.25)"),
    (LeastSquaresOptions(), "Looks(rule='auto', clip=None, target='mean', robust=True, adapt=False)"),
    (
        LeastSquaresOptions(rule=None, clip=1.5, target="robust", robust=False, adapt_bounds=True),
        "Looks(rule=None, clip=1.5, target='robust', robust=False, adapt=True)",
    ),
    (
        FitPlan(
            optimizer=pi.Newton(), **SPENT, least_squares=LeastSquaresOptions(), curved=True, margins=True
        ),
        "FitPlan(mu=2.5, rounds_mu=0.0, final_mu=2.5, delta=0.001, "
        "optimizer=Newton(rounds=3, final_share=0.8), public_seed=0, clients=None, robust=True, block=None, "
        "weak='')",
    ),
    (
        FitPlan(
            optimizer=pi.DPSGD(),
            **SPENT | {"mu": math.inf, "clients": Clients(2, 1.0)},
            robust=False,
            weak='it\'s "weak"',
        ),
        f"FitPlan(mu=inf, rounds_mu=0.0, final_mu=2.5, delta=0.001, optimizer=DPSGD({FIRST_ORDER}), "
        "public_seed=0, clients=Clients(rows=2, clip=1.0), robust=False, block=None, weak='it\\'s \"weak\"')",
    ),
    # settings beside a plan, and options of commands
    ("a'b", '"a\'b"'),
    (None, "None"),
    (True, "True"),
    (np.True_, "np.True_"),
    (1e22, "1e+22"),
    ((), "()"),
    ((2.5,), "(2.5,)"),
    ((1, ("a", None)), "(1, ('a', None))"),
    ([0, 2], "[0, 2]"),
    ([], "[]"),
    (PurePosixPath("a b/c.csv"), "PurePosixPath('a b/c.csv')"),
]


@pytest.mark.parametrize(("value", "text"), PLAN_TEXTS, ids=[text[:60] for _, text in PLAN_TEXTS])
def test_plans_are_written_as_ever(value, text):
    assert wire.plan_text(value) == text
    if not any(f"{name}(" in text for name in renamed()):
        assert repr(value) == text


def renamed() -> set[str]:
    """Return the classes of plans that have another name, or other fields, in the code than in texts."""
    return {
        plan.name
        for name, plan in wire.PLAN_CLASSES.items()
        if name != plan.name or any(text not in (None, name) for name, text in plan.fields.items())
    }


def test_every_class_of_plans_has_texts_here():
    written = {type(value).__name__ for value, _ in PLAN_TEXTS}
    assert written >= wire.PLAN_CLASSES.keys()


@pytest.mark.parametrize("value", [Block(np.arange(2), 1.0, ("a",)), object(), {"a": 1}, b"a", np.arange(3)])
def test_what_has_no_text_is_refused(value):
    with pytest.raises(ArgumentError, match="a plan cannot hold a value of type"):
        wire.plan_text((1, value))


@dataclass(frozen=True)
class Sgd:
    """A class of plans whose name and fields are others than they once were."""

    passes: int = 2
    rate: float = 0.5
    label: str = field(default="x", repr=False)


def test_a_renamed_class_and_field_keep_their_text(monkeypatch):
    table = {"Sgd": wire.PlanClass("Descent", rate="step", passes="epochs", label=None)}
    monkeypatch.setattr(wire, "PLAN_CLASSES", table)
    assert wire.plan_text((Sgd(), 1)) == "(Descent(step=0.5, epochs=2), 1)"


@pytest.mark.parametrize(
    "known", [{"passes": "epochs"}, {one.name: one.name for one in fields(Sgd)} | {"k": "k"}]
)
def test_a_field_that_the_table_does_not_name_is_an_error(monkeypatch, known):
    monkeypatch.setattr(wire, "PLAN_CLASSES", {"Sgd": wire.PlanClass("Sgd", **known)})
    with pytest.raises(ArgumentError, match="list exactly the fields of the class Sgd"):
        wire.plan_text(Sgd())


def test_the_digest_of_a_fit_is_what_it_was():
    """It is that of commit d8eb221, which hashed what `repr` gave."""
    design = pi.Design.from_formula("y ~ a", pi.Schema({"y": (0, 1), "a": (-1, 1)}))
    model = {"family": "gaussian", "radius": 1.5, "scale": np.array([1.0, 2.0])}
    plan = FitPlan(optimizer=pi.DOME(), **SPENT)
    found = fit_digest(design, model, plan, LeastSquaresOptions(), (), "server", "replace-one", 0)
    assert found == "b863a46aacdfafe96981ea44aa8ca2b4a1ad2ef5381365ad7a38a33fd1d085a7"
    assert found != fit_digest(
        design, model, plan, LeastSquaresOptions(adapt_bounds=True), (), "server", "replace-one", 0
    )


def test_options_of_a_release_have_names_in_the_digest():
    left_out = {"quiet", "overwrite", "ledger_file"}
    assert wire.RELEASE_OPTIONS.keys() == ReleaseOptions.__annotations__.keys() - left_out


# ---- what people read


def test_texts_are_read_in_other_words_or_as_they_are():
    hashed = {text for held in namespaces().values() for text in held.values() if isinstance(text, str)}
    assert wire.SHOWN_AS.keys() <= hashed
    for text in hashed - wire.SHOWN_AS.keys():
        assert wire.readable(text) == text, "another template matches it, too"


@pytest.mark.parametrize("text", wire.SHOWN_AS)
def test_what_is_shown_has_the_fields_of_what_is_hashed(text):
    fields = {name for _, name, _, _ in Formatter().parse(text) if name}
    assert {name for _, name, _, _ in Formatter().parse(wire.SHOWN_AS[text]) if name} == fields
    filled = dict.fromkeys(fields, "x y")
    assert wire.readable(text.format(**filled)) == wire.SHOWN_AS[text].format(**filled)


def test_what_is_shown_can_change_and_what_is_hashed_stays(monkeypatch):
    monkeypatch.setitem(wire.SHOWN_AS, wire.Labels.ITS_VALUES, "values at {label}")
    monkeypatch.setitem(wire.SHOWN_AS, wire.Labels.TOP_K, "the largest entries")
    monkeypatch.setitem(wire.SHOWN_AS, wire.Assumptions.PUBLIC_N, "n is public")
    assert wire.readable("top k, values") == "values at the largest entries"
    found = pi.mechanisms.NoisyTopK(1, sensitivity=1.0, mu=1.0).release([3.0, 1.0], rng=0)
    (picks, values) = found.entries
    assert (picks.label, values.label) == ("top k", "top k, values")
    assert wire.Assumptions.PUBLIC_N in picks.assumptions
    report = found.privacy
    for shown in (str(report), report._repr_html_(), report.releases.to_string()):
        assert "values at the largest entries" in shown
        assert "top k" not in shown
    assert "n is public" in str(report)
    assert wire.Assumptions.PUBLIC_N not in str(report) + report._repr_html_()
    assert json.dumps(report.to_dict()).count(wire.Assumptions.PUBLIC_N) == 2


# ---- the texts stand nowhere else

# Texts of other things: how the covariance of mixed rows was estimated; the axis of a plot.
EXEMPT = {"privinf.mixing.equation": {"mixed rows"}, "privinf.plotting": {"mean of {}"}}
# Keywords whose texts go to a ledger line or to a digest; in these modules `label` is that of a plot or of a
# table's row, or says how the labels of local examples are sent.
WRITTEN = {"label", "derivation", "mechanism", "norm", "disjoint"}
OTHER_LABELS = {"privinf.plotting", "privinf.results.page", "privinf.iwp.model", "privinf.planning"}
LINES = {"LedgerEntry", "Line", "Sensitivity"}


def telling(text: str) -> bool:
    """Say whether a text is none that stands for anything else by chance."""
    return bool(re.search(r"[ ._]|^privinf", text))


def skeleton(template: str) -> str:
    """Return a template with its fields emptied: that of an f-string of the same text."""
    return "".join(
        literal + ("{}" if name is not None else "") for literal, name, _, _ in Formatter().parse(template)
    )


TEXTS = {text for held in namespaces().values() for text in held.values() if telling(str(text))}
SKELETONS = {
    skeleton(text)
    for text in TEXTS
    if isinstance(text, str) and "{" in text and len(re.findall("[A-Za-z]", skeleton(text))) > 4
}


def literals(nodes: list[ast.AST]) -> Iterator[str | bytes]:
    """Yield every text of a module but docstrings; f-strings as skeletons."""
    skipped = set()
    for node in nodes:
        if isinstance(node, ast.Expr):
            skipped.add(node.value)
        elif isinstance(node, ast.JoinedStr):
            skipped.update(node.values)
            yield "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)) and node not in skipped:
            yield node.value


def is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value != ""
    )


def written_in_place(nodes: list[ast.AST], *, labels: bool = True) -> Iterator[str]:
    """Yield texts that stand in a call where one of `wire` belongs."""
    for node in nodes:
        parts: list[ast.AST] = []
        if isinstance(node, ast.Call):
            called = node.func.id if isinstance(node.func, ast.Name) else ""
            words = WRITTEN | ({"source", "assumptions"} if called in LINES else set())
            named = {one.arg: one.value for one in node.keywords if labels or one.arg != "label"}
            parts += [value for name, value in named.items() if name in words]
            if isinstance(named.get("assumptions"), ast.Tuple):
                parts += named["assumptions"].elts
            if "noise" in named and isinstance(named["noise"], ast.Dict):
                parts += named["noise"].values
            parts += node.args if any(map(is_statistic, node.args)) or called in LINES else []
        if isinstance(node, ast.Tuple) and any(map(is_statistic, node.elts)):
            parts += node.elts
        for part in parts:
            choices = [part.body, part.orelse] if isinstance(part, ast.IfExp) else [part]
            yield from (ast.unparse(one) for one in choices if is_text(one))


def is_statistic(node: ast.AST) -> bool:
    """Say whether an expression is the name of a statistic."""
    return (
        isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Statistics"
    )


def strays(name: str, tree: ast.Module) -> list[str | bytes]:
    """Return the texts of a module that belong into `wire`."""
    nodes = list(ast.walk(tree))
    found = [text for text in literals(nodes) if text in TEXTS or text in SKELETONS]
    found += written_in_place(nodes, labels=name not in OTHER_LABELS)
    return [text for text in found if text not in EXEMPT.get(name, ())]


def test_no_other_module_holds_such_a_text():
    found = {
        module.name: strays(module.name, module.tree)
        for module in house_tree().of("privinf")
        if module.name != wire.__name__ and module.room != "datasets"
    }
    assert {name: texts for name, texts in found.items() if texts} == {}


@pytest.mark.parametrize(
    "text",
    [
        "x = 'the number of records is public (replace-one)'",
        "x = f'{op}: {why}; rounding'",
        "x = f'score, round {number + 1}'",
        "x = {'a': 'whitened.meat'}",
        "x = b'privinf noise 1'",
        "server.vector_sum(op, args, label='meat')",
        "server.vector_sum(op, args, label='meat' if robust else Labels.MEAT)",
        "asked.vector(Statistics.WHITENED_MEAT, 0.1, 'anything', args)",
        "last = (Statistics.WHITENED_MEAT, 0.1, f'anything {else_}')",
        "Line(mechanism=Mechanisms.GAUSSIAN, assumptions=('n is public',))",
        "Sensitivity(Norms.L2, 1.0, 'because')",
        "LedgerEntry(noise={'law': 'gaussian'})",
        "ledger.scope('1', disjoint=f'fold {k}')",
    ],
)
def test_a_text_in_its_place_is_seen(text):
    assert strays("privinf.glm.anything", ast.parse(text))


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    'whitened.meat'",
        "x = Labels.MEAT",
        "f(label=Labels.BY.format(values=a))",
        "f(label='')",
    ],
)
def test_what_is_no_such_text_is_left_alone(text):
    assert strays("privinf.glm.anything", ast.parse(text)) == []


# ---- what fits file in their ledgers


def is_known(text: str, space: str) -> bool:
    """Say whether a namespace gives a text: a constant, or a template whose fields are known in turn."""
    held = namespaces()[space].values()
    if text in held:
        return True
    return any(
        all(of_field(name, part, space) for name, part in filled.groupdict().items())
        for template in held
        if "{" in template and (filled := wire.pattern(template).fullmatch(text))
    )


def of_field(name: str, text: str, space: str) -> bool:
    if name == "op":
        return text in SHIPPED
    wider = {
        "label": "Labels",
        "derivation": "Derivations",
        "factor": "Derivations",
        "distance": "Derivations",
    }
    if name in {"k", "times", "round", "rows", "levels", "width"}:
        return text.isdecimal()
    return is_known(text, wider[name]) if name in wider else True


def test_a_text_of_nobody_is_not_known():
    assert is_known("top k (2 vectors), values", "Labels")
    assert is_known("glm.score: 2RE, |u| <= R, |r| <= E; rounding", "Derivations")
    assert not is_known("scores of nobody", "Labels")
    assert not is_known("glm.none: 2RE, |u| <= R, |r| <= E; rounding", "Derivations")
    assert not is_known("glm.score: because", "Derivations")
    assert not is_known("score, round one", "Labels")


FITS = [
    "MomentOLS central, HC0",
    "MomentOLS local, several rows a person",
    "MomentOLS secure sums, HC0, a colluding site",
    "ModulatedOLS one-shot",
    "IWPGLM of arrays, binary column",
    "RMGMOLS signs",
    "BGMOLS plain",
    "OLS robust target",
    "Logit mu",
    "FederatedGLM gaussian, secure-sum, a colluding site",
    "FederatedGLM binomial, secure-sum, sites as units, clipped",
    "FederatedGLM binomial, server, targets",
    "DebiasedLasso of named targets, more rows",
    "DebiasedLasso secure sums",
    "sparse_mean",
    "NoisyTopK, pure",
    "stats.mean, clipped",
    "stats.ttest_1samp",
    "stats.kruskal",
]


@pytest.fixture(scope="module")
def digest_fits():
    sys.path.append(str(BENCHMARKS))
    try:
        import digest_doors  # noqa: F401  # its fits stand there too
        from digest_fits import FITS as fits

        yield fits
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.mark.audit
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FITS)
def test_a_fit_files_known_texts_alone(name, digest_fits, monkeypatch):
    lines, check = [], LedgerEntry.__post_init__

    def noted(entry):
        check(entry)
        lines.append(entry)

    monkeypatch.setattr(LedgerEntry, "__post_init__", noted)
    digest_fits[name]()
    assert lines
    spaces = namespaces()
    for line in lines:
        assert is_known(line.label, "Labels"), line.label
        assert line.mechanism in spaces["Mechanisms"].values(), line.mechanism
        assert line.source in spaces["NoiseSources"].values(), line.source
        assert line.noise["law"] in spaces["NoiseLaws"].values(), line.noise
        assert line.sensitivity.norm in spaces["Norms"].values(), line.sensitivity
        assert is_known(line.sensitivity.derivation, "Derivations"), line.sensitivity.derivation
        assert set(line.assumptions) <= set(spaces["Assumptions"].values()), line.assumptions
