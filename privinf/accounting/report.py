"""PrivacyReport: privacy loss of a fit and of its ledger, in statistical terms, as text and as HTML."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from itertools import groupby
from typing import TYPE_CHECKING, Any, Self

from scipy.special import ndtr, ndtri

from privinf.accounting.budget import DEFAULT_DELTA, Budget
from privinf.accounting.calibration import sum_up
from privinf.accounting.composition import ParallelTotal, Total, available, compose
from privinf.accounting.entries import LedgerEntry, check_joined, stamp_of
from privinf.accounting.ledger import Ledger, account_of
from privinf.accounting.losses import PureLoss
from privinf.accounting.scopes import partition_of, total_of
from privinf.error_boundary import error_boundaries
from privinf.errors import ArgumentError, NotAvailableError
from privinf.typing import Relation, ReportSubject, TrustModel
from privinf.validation import (
    check_choice,
    check_count,
    check_flag,
    check_fraction,
    counted,
    error_text,
    shown,
)
from privinf.wire import Assumptions, readable

if TYPE_CHECKING:
    import pandas as pd

Facts = list[tuple[str, str]]

OF_RECORDS = (
    "totals are per record: a person or other unit with several records can lose more "
    "privacy than the totals state"
)
# Scope of the releases of another ledger, whose scopes are never disjoint from those of this one. No scope of
# a ledger has an empty name.
_ELSEWHERE = ""
# Names of the first column of `PrivacyReport.to_frame`.
COLUMN_NAMES: dict[ReportSubject, str] = {
    "fit": "this fit",
    "earlier release": "its release",
    "release": "this release",
    "party": "this party",
    "ledger": "ledger",
}
PARTIES = "Each party alone (the totals above are per person and include all parties)"
UNPROTECTED_RESPONSE = "the response is NOT protected: it was released without noise"
HEADINGS: dict[ReportSubject, str] = {
    "fit": "Privacy of this fit",
    "earlier release": "Privacy of the release that this fit was made from",
    "release": "Privacy of this release",
    "party": "Privacy of one party's releases",
    "ledger": "Privacy of all releases together (the entire ledger)",
}
# The same of a fit without a ledger, and of a ledger without a limit.
KNOWN_ALONE = "Privacy of all known releases together (releases in other ledgers, or in none, add to it)"
# Spending of a fit from an earlier release.
NOTHING_SPENT = "nothing, because the release that it uses was charged earlier"
# What a statement for a paper says of neighboring relations and trust models. It must be true of every report
# that is not refused: a report knows what was assumed of the people who held the rows, and not who they were.
NEIGHBORS: dict[Relation, str] = {
    "replace-one": "replacing {unit}",
    "zero-out": "replacing {unit} by a contribution of zero",
}
SINGLE_ROWS = ("record", "person")  # units of one row each
HOLDERS: dict[TrustModel, str] = {
    "central": "a curator was trusted with the rows",
    "server": "the sites were trusted with their rows, and a server with their sums",
    "secure-sum": (
        "the guarantee needs each site to be trusted with its own rows, but no server to be trusted with the "
        "sum of a single site"
    ),
    "local": "the guarantee needs no trusted curator if each {unit} is noised by its own holder",
    "per-party": "the guarantee needs each party to be trusted with its own columns alone",
}
DISJOINT_PARTS = "the groups of the disjoint parts of the ledger were fixed before the data were seen"
# Ends the reason why there is no statement.
BY_HAND = (
    '; write the paragraph by hand, from the template under "An example paragraph" in docs/howto/report.md'
)
NO_STATEMENT = "there is no privacy statement, because "
RECORDS_ARE_PUBLIC = "The number of records is public."
LEDGER = "Ledger at the end of this fit"
# Where releases are counted that the ledger itself does not hold.
INCLUDING_OTHERS = "including {} that {} charged to another ledger"
# Numbers of a line in the table of releases.
_FIGURES = ("sensitivity", "noise_scale", "mu", "rho", "epsilon")
# Of `PrivacyReport.releases`.
_COLUMNS = (
    "label",
    "mechanism",
    "unit",
    "relation",
    "trust",
    "sensitivity",
    "norm",
    "noise_scale",
    "mu",
    "rho",
    "epsilon",
    "source",
    "secure",
    "scope",
)


@error_boundaries
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PrivacyReport:
    """Privacy cost of one fit, and of all releases that its ledger had recorded when the fit ended.

    Reports are made by :meth:`from_entries`. Nothing in the entries of a report depends on the data.

    Parameters
    ----------
    entries : tuple of LedgerEntry
        The releases of this fit.
    recorded : tuple of LedgerEntry
        All entries in the ledger when the report was made. Without a ledger, they are equal to `entries`.
    budget : Budget or None
        Limit of the ledger; None without a limit.
    default_delta : float
        Delta of the (epsilon, delta) guarantee that the report prints.
    fit : int or None
        Number of this fit in its ledger, counted from 1; None if the number is not known.
    subject : {"fit", "earlier release", "release", "party", "ledger"}
        Releases that the totals cover: the releases of a fit, an earlier release that a fit reads at no
        further cost, one release, the releases of one party, or all releases in a ledger.
    elsewhere : int
        Number of the `entries` that were charged to a different ledger than the ledger of this report.
    delta_is_default : bool
        Whether neither the call nor the ledger chose `default_delta`.

    Notes
    -----
    **Privacy.** Costs nothing: no rows are read. Totals are the joint cost of all releases. Some
    models take a budget for each confidence interval, or for each party. Such a budget sets the size of the
    noise, but the totals always count all confidence intervals and all parties together.

    Examples
    --------
    >>> import privinf as pi
    >>> from privinf.accounting import GaussianLoss
    >>> entry = pi.LedgerEntry(mechanism="gaussian", label="moments", unit="record", relation="replace-one",
    ...                     trust="central", loss=GaussianLoss(0.25), source="lattice", secure=True)
    >>> report = pi.PrivacyReport.from_entries([entry], delta=1e-5)
    >>> round(report.epsilon(1e-5), 3), report.mu, report.rho
    (0.926, 0.25, 0.03125)
    """

    entries: tuple[LedgerEntry, ...]
    recorded: tuple[LedgerEntry, ...]
    budget: Budget | None = None
    default_delta: float = DEFAULT_DELTA
    fit: int | None = None
    subject: ReportSubject = "fit"
    elsewhere: int = 0
    delta_is_default: bool = False

    @classmethod
    def from_entries(
        cls,
        entries: Iterable[LedgerEntry],
        ledger: Ledger | None = None,
        *,
        delta: float | None = None,
        subject: ReportSubject = "fit",
        nobs: int | None = None,
    ) -> PrivacyReport:
        """Make a report on the releases of one fit.

        Parameters
        ----------
        entries : iterable of LedgerEntry
            Ledger entries of the releases, as ``ledger.spend`` returns them.
        ledger : Ledger, optional
            Ledger to which the entries were charged. They may belong to any of its scopes. The report stores
            the present entries of the ledger, from which :attr:`cumulative` is computed. Entries that were
            charged to a different ledger are included in :attr:`cumulative` too.
        delta : float, optional
            Delta of the (epsilon, delta) guarantee that the report prints. The default is the delta of the
            limit of the ledger. If there is none, it is 1e-6, or 1/(2 nobs) if that is smaller.
        subject : {"fit", "earlier release", "release", "party", "ledger"}
            Releases that the totals cover: the releases of a fit, an earlier release that a fit reads at no
            further cost, one release, the releases of one party, or all releases in a ledger.
        nobs : int, optional
            Number of records, for the default of `delta`.

        Returns
        -------
        PrivacyReport
            The report.

        Raises
        ------
        ArgumentError
            Raised if `delta` is outside (0, 1), if an item is not a LedgerEntry, if zero-out entries are
            mixed with entries of a different neighboring relation, or if `subject` is not one of the choices.
        """
        lines = tuple(entries)
        check_choice(subject, ReportSubject, "subject")
        for entry in lines:
            if not isinstance(entry, LedgerEntry):
                raise ArgumentError(
                    f"entries= must be a sequence of LedgerEntry objects, got {type(entry).__name__}"
                )
        check_joined(entry.relation for entry in lines)
        budget = None if ledger is None else ledger.budget
        limit_delta = None if budget is None else budget.delta
        delta_is_default = delta is None and limit_delta is None
        if delta is None:
            largest = DEFAULT_DELTA if nobs is None else min(DEFAULT_DELTA, 0.5 / nobs)
            delta = largest if limit_delta is None else limit_delta
        fit = None if ledger is None else ledger.number_fit(lines)
        recorded = () if ledger is None else account_of(ledger)[0].snapshot()
        recorded_ids = {entry.id for entry in recorded}
        # A release that came from elsewhere was charged to another account: it is part of the total here too.
        charged_elsewhere = tuple(entry for entry in lines if entry.id not in recorded_ids)
        return cls(
            entries=lines,
            recorded=(*recorded, *charged_elsewhere),
            budget=budget,
            default_delta=check_fraction(delta, "delta"),
            fit=fit,
            subject=subject,
            elsewhere=0 if ledger is None else len(charged_elsewhere),
            delta_is_default=delta_is_default,
        )

    def epsilon(self, delta: float | None = None) -> float:
        """Return the joint epsilon of all releases of this report, at a given delta.

        Parameters
        ----------
        delta : float, optional
            Delta of the guarantee, in (0, 1); by default the delta of the report.

        Returns
        -------
        float
            Epsilon.

        Raises
        ------
        ArgumentError
            Raised if `delta` is outside (0, 1).
        """
        return self._total().epsilon(self.default_delta if delta is None else delta)

    def delta(self, epsilon: float) -> float:
        """Return the joint delta of all releases of this report, at a given epsilon.

        Parameters
        ----------
        epsilon : float
            Epsilon of the guarantee, finite and at least 0.

        Returns
        -------
        float
            Delta.

        Raises
        ------
        ArgumentError
            Raised if `epsilon` is negative, infinite or nan.
        """
        return self._total().delta(epsilon)

    @property
    def mu(self) -> float:
        """Cost of this fit as mu of Gaussian DP; NotAvailableError, with the reason, if mu is undefined."""
        return self._total().mu

    @property
    def rho(self) -> float:
        """Cost of this fit as rho of zCDP; NotAvailableError, with the reason, if rho is undefined."""
        return self._total().rho

    @property
    def cumulative(self) -> Self:
        """Privacy report on all releases that the ledger had recorded when this report was made."""
        return type(self)(
            entries=self.recorded,
            recorded=self.recorded,
            budget=self.budget,
            default_delta=self.default_delta,
            subject="ledger",
            elsewhere=self.elsewhere,
            delta_is_default=self.delta_is_default,
        )

    @property
    def place(self) -> str:
        """Number of this fit in its ledger and total cost, as text; empty if there is no other release."""
        earlier = len({entry.id for entry in self.recorded} - {entry.id for entry in self.entries})
        if not earlier:
            return ""
        before = f"after {counted(earlier, 'other release')}" if self.fit is None else f"fit {self.fit}"
        return f"{before}: epsilon {self.cumulative.epsilon():.4g} in total{self.stamp_of_others}"

    @property
    def others_included(self) -> str:
        """Text on the releases in the total that were charged to another ledger; empty without any."""
        return _including_others(self) if self.elsewhere else ""

    @property
    def stamp_of_others(self) -> str:
        """Text with a comma and the stamp of the total (such as NOT PRIVATE); empty without a stamp.

        The text is not empty if all releases of this report have secure noise, but some other release in the
        ledger has seeded noise or no noise. If this report itself has a stamp, the text is empty.
        """
        stamp = stamp_of(self.recorded)
        return f", {stamp}" if stamp and not self.stamp else ""

    def statement(self) -> str:
        """Return sentences for a paper: the total guarantee, neighbors, mechanisms, trust and noise.

        They state the total of the ledger if the fit has one, and otherwise that they cover this fit alone.

        Returns
        -------
        str
            The sentences. The source of the bounds and the version of the software are not among them,
            because a report does not contain them. Epsilon and delta are rounded up.

        Raises
        ------
        NotAvailableError
            Raised if some noise was seeded or zero, or if nothing was released: there is no guarantee then.
            Also raised if the sentences do not fit the guarantee: for metric privacy, bounds from the data,
            a response without noise, releases with different units or trust models, or an infinite epsilon.
        """
        return _statement(self)

    @property
    def unit(self) -> str:
        """Unit of privacy."""
        return _joined(entry.unit for entry in self.entries)

    @property
    def relation(self) -> str:
        """Neighboring relation of the releases.

        If the releases have several relations, the total cost is for two tables that are neighbors under all
        these relations.
        """
        return _joined(entry.relation for entry in self.entries)

    @property
    def trust(self) -> str:
        """Trust model, that is, who had access to the raw rows."""
        return _joined(entry.trust for entry in self.entries)

    @property
    def secure(self) -> bool:
        """Whether every release used secure noise."""
        return all(entry.secure for entry in self.entries)

    @property
    def simulated(self) -> bool:
        """Whether some release had seeded noise or no noise; the fit is then a simulation and not private."""
        return not self.secure

    @property
    def stamp(self) -> str:
        """Stamp in every output of this fit (such as NOT PRIVATE); empty if all noise was secure."""
        return stamp_of(self.entries)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Assumptions of the privacy guarantee, each listed once."""
        units = {entry.unit for entry in self.entries}
        mixed = [OF_RECORDS] if "record" in units and len(units) > 1 else []
        return tuple(dict.fromkeys([text for entry in self.entries for text in entry.assumptions] + mixed))

    @property
    def response_in_clear(self) -> bool:
        """Whether the response was released unprotected; the guarantee then covers only the other columns."""
        return Assumptions.CLEAR_RESPONSE in self.assumptions

    @property
    def releases(self) -> pd.DataFrame:
        """Table of the releases of this report, with label, mechanism, noise and cost of each release.

        Costs that are undefined for a mechanism are nan. Epsilon is stated at the default delta of the
        report.
        """
        import pandas as pd

        return pd.DataFrame([self._row(entry) for entry in self.entries], columns=list(_COLUMNS))

    @property
    def parties(self) -> pd.DataFrame:
        """Table of the parties that made releases about the same units, with the cost of each party.

        Its columns are ``label`` (labels of the party's releases), ``noise_scale``, ``epsilon`` (at the
        default delta), ``mu`` and ``rho``. The table is empty if no release has the name of a party. The
        totals of the report are the joint cost of the releases of all parties.
        """
        import pandas as pd

        names = dict.fromkeys(entry.party for entry in self.entries if entry.party)
        rows = {name: self._party_row(name) for name in names}
        columns = ["label", "noise_scale", "epsilon", "mu", "rho"]
        table = pd.DataFrame.from_dict(rows, orient="index", columns=columns)
        return table.rename_axis("party")

    def party(self, name: str) -> PrivacyReport:
        """Return a privacy report on the releases of one party alone.

        Parameters
        ----------
        name : str
            Name of the party.

        Returns
        -------
        PrivacyReport
            The report of the party.

        Raises
        ------
        ArgumentError
            Raised if there are no releases of this party.
        """
        entries = tuple(entry for entry in self.entries if isinstance(name, str) and entry.party == name)
        if not entries:
            parties = ", ".join(self.parties.index) or "none"
            raise ArgumentError(f"the report has no release of a party {shown(name)}; its parties: {parties}")
        recorded = tuple(entry for entry in self.recorded if entry.party == name)
        return PrivacyReport(
            entries=entries,
            recorded=recorded,
            default_delta=self.default_delta,
            subject="party",
            elsewhere=sum(entry.party == name for entry in self._charged_elsewhere()),
            delta_is_default=self.delta_is_default,
        )

    def to_frame(self) -> pd.DataFrame:
        """Return a table of the total cost of this fit and of its ledger; undefined totals are nan.

        The first column has the name "this fit", or "its release" if the fit uses an earlier release. The row
        "private" is 1 if all noise is secure, and 0 if a release has seeded noise or no noise. If "private"
        is 0, the other rows describe a simulation.

        Returns
        -------
        DataFrame
            Table with the rows epsilon, mu, rho, number of releases and "private". It has one column for the
            fit or its release, and one for the ledger.
        """
        import pandas as pd

        reports = {COLUMN_NAMES[self.subject]: self, "cumulative": self.cumulative}
        index = [f"epsilon at delta {self.default_delta:g}", "mu", "rho", "releases", "private"]
        columns = {name: (*report._figures(), float(not report.stamp)) for name, report in reports.items()}
        return pd.DataFrame(columns, index=index)

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary that can be written as JSON.

        Returns
        -------
        dict
            For `from_dict`.
        """
        fit = [entry.id for entry in self.entries]
        recorded = [entry.id for entry in self.recorded]
        everything = {entry.id: entry for entry in (*self.recorded, *self.entries)}
        return {
            "entries": [entry.to_dict() for entry in everything.values()],
            "fit": fit,
            "recorded": None
            if (fit == recorded if self.elsewhere else set(fit) == set(recorded))
            else recorded,
            "budget": None if self.budget is None else self.budget.to_dict(),
            "default_delta": self.default_delta,
            **({} if self.fit is None else {"number": self.fit}),
            **({} if self.subject == "fit" else {"subject": self.subject}),
            **({"elsewhere": self.elsewhere} if self.elsewhere else {}),
            **({"delta_is_default": True} if self.delta_is_default else {}),
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> PrivacyReport:
        """Make the object from a dictionary that `to_dict` returned.

        Parameters
        ----------
        record : mapping
            Result of `to_dict`.

        Returns
        -------
        PrivacyReport
            The same report.

        Raises
        ------
        ArgumentError
            Raised if the dictionary does not describe a report.
        """
        try:
            lines = {entry["id"]: LedgerEntry.from_dict(entry) for entry in record["entries"]}
            fit = tuple(lines[key] for key in record["fit"])
            recorded = fit if record["recorded"] is None else tuple(lines[key] for key in record["recorded"])
            budget = None if record["budget"] is None else Budget.from_dict(record["budget"])
            number = record.get("number")
            number = None if number is None else check_count(number, "number")
            elsewhere = check_count(record.get("elsewhere", 0), "elsewhere", least=0)
            return cls(
                entries=fit,
                recorded=recorded,
                budget=budget,
                default_delta=check_fraction(record["default_delta"], "default_delta"),
                fit=number,
                subject=check_choice(record.get("subject", "fit"), ReportSubject, "subject"),
                elsewhere=elsewhere,
                delta_is_default=check_flag(record.get("delta_is_default", False), "delta_is_default"),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ArgumentError(
                f"the record is not a valid privacy report ({error_text(error)}); use an intact copy"
            ) from None

    def __repr__(self) -> str:
        spent = f"epsilon {self.epsilon():.4g} at delta {self.default_delta:g}"
        stamp = f", {self.stamp}" if self.stamp else ""
        return f"<PrivacyReport: {spent}, {counted(len(self.entries), 'release')}{stamp}>"

    def __str__(self) -> str:
        return _report_text(self)

    def _repr_html_(self) -> str:
        return _report_html(self)

    def _total(self) -> Total | ParallelTotal:
        """Return the total; scopes compose in parallel only within one ledger."""
        elsewhere = {entry.id for entry in self._charged_elsewhere()}
        if not elsewhere and self.budget is None and self.recorded == self.entries:
            elsewhere = {entry.id for entry in self.entries if entry.party}  # each party can have its ledger
        names = dict.fromkeys(entry.party for entry in self.entries)
        parties = {party: str(k) for k, party in enumerate(names)}
        return total_of(
            (
                (_ELSEWHERE, parties[entry.party], *entry.scope) if entry.id in elsewhere else entry.scope,
                entry.loss,
            )
            for entry in self.entries
        )

    def _charged_elsewhere(self) -> tuple[LedgerEntry, ...]:
        """Return the entries that were charged to another ledger."""
        return self.recorded[max(len(self.recorded) - self.elsewhere, 0) :]

    def _figures(self) -> tuple[float, float, float, float]:
        total = self._total()
        mu = available(lambda: total.mu)
        rho = available(lambda: total.rho)
        return total.epsilon(self.default_delta), mu, rho, float(len(self.entries))

    def _party_row(self, name: str) -> list[Any]:
        report = self.party(name)
        epsilon, mu, rho, _ = report._figures()
        labels = ", ".join(dict.fromkeys(readable(entry.label) for entry in report.entries))
        scales = [float(entry.noise.get("scale", math.nan)) for entry in report.entries]
        return [labels, max(scales), epsilon, mu, rho]

    def _row(self, entry: LedgerEntry) -> tuple[Any, ...]:
        total = compose([entry.loss])
        sensitivity = entry.sensitivity
        return (
            *(readable(entry.label), entry.mechanism, entry.unit, entry.relation, entry.trust),
            math.nan if sensitivity is None else sensitivity.value,
            "" if sensitivity is None else sensitivity.norm,
            entry.noise.get("scale", math.nan),
            available(lambda: total.mu),
            available(lambda: total.rho),
            total.epsilon(self.default_delta),
            entry.source,
            entry.secure,
            "/".join(entry.scope),
        )


def joint_report(reports: Sequence[PrivacyReport]) -> PrivacyReport:
    """Return the report on the releases of several reports together, each release once.

    Scopes compose in parallel only within one ledger, because partitions of two ledgers may have the same
    name and other groups of the same people. Reports are of one ledger if they have a recorded release in
    common.

    Parameters
    ----------
    reports : sequence of PrivacyReport
        One or more reports.

    Returns
    -------
    PrivacyReport
        The report, at the largest of their deltas. With several ledgers each is a scope of its own.

    Raises
    ------
    ArgumentError
        The neighboring relations of the releases cannot be added.
    """
    ledgers: list[set[str]] = []
    foreign = [{entry.id for entry in report._charged_elsewhere()} for report in reports]
    for report, others in zip(reports, foreign, strict=True):
        own = {entry.id for entry in (*report.recorded, *report.entries)} - others
        common = [ids for ids in ledgers if ids & own]
        ledgers = [ids for ids in ledgers if not ids & own] + [own.union(*common)]
    for others in foreign:  # their ledger may be known from another report
        ledgers.append(others.difference(*ledgers))
    ledgers = [ids for ids in ledgers if ids]
    number = {identity: k for k, ids in enumerate(ledgers, 1) for identity in ids}
    entries = {entry.id: entry for report in reports for entry in report.entries}
    if len(ledgers) > 1:
        entries = {
            identity: entry.filed(identity, (f"ledger {number[identity]}", *entry.scope))
            if entry.scope
            else entry
            for identity, entry in entries.items()
        }
    delta = max(report.default_delta for report in reports)
    return PrivacyReport.from_entries(entries.values(), delta=delta, subject="release")


def _joined(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(values)) or "nothing released"


def _report_text(report: PrivacyReport) -> str:
    """Return the report as plain text: totals, releases (equal ones in one line), assumptions, the ledger."""
    lines = [_heading(report), *_indented(_facts(report))]
    if report.entries:
        lines += ["", "Releases", *_columns(_cells(report))]
    if parties := _party_cells(report):
        lines += ["", PARTIES, *_columns(parties)]
    if report.assumptions:
        lines += ["", "Assumptions", *(f"  - {readable(text)}" for text in report.assumptions)]
    if _has_ledger(report):
        lines += ["", _ledger_heading(report), *_indented(_running(report))]
    return "\n".join(lines)


def _report_html(report: PrivacyReport) -> str:
    """Return the same as an HTML fragment, every text escaped."""
    parts = [f"<div><b>{html.escape(_heading(report))}</b>", _table(_facts(report))]
    if report.entries:
        header, *rows = _cells(report)
        parts.append(_table(rows, header))
    if parties := _party_cells(report):
        parts += [f"<b>{PARTIES}</b>", _table(parties[1:], parties[0])]
    if report.assumptions:
        items = "".join(f"<li>{html.escape(readable(text))}</li>" for text in report.assumptions)
        parts.append(f"<ul>{items}</ul>")
    if _has_ledger(report):
        parts += [f"<b>{_ledger_heading(report)}</b>", _table(_running(report))]
    return "".join([*parts, "</div>"])


def rounded_up(value: float, digits: int) -> str:
    """Return a number as text with `digits` significant digits; the text is never below the number."""
    up = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(repr(float(value)))
    return f"{float(up):.{digits}g}"


def _statement(report: PrivacyReport) -> str:
    """Return the sentences of `PrivacyReport.statement`."""
    total = report.cumulative
    _check_statable(total)
    relation, trust = total.entries[0].relation, total.entries[0].trust
    neighbors = NEIGHBORS[relation].format(unit=_replaced(total.unit))
    mechanisms = ", ".join(dict.fromkeys(readable(entry.mechanism) for entry in total.entries))
    assumed = [readable(text) for text in total.assumptions]
    if any(partition_of(part) is not None for entry in total.entries for part in entry.scope):
        assumed.append(DISJOINT_PARTS)
    stated = relation != "replace-one" or any("number of records is public" in text for text in assumed)
    sentences = [
        f"{_releases_of(report)} {_guarantee(total)} for {neighbors}, {_extent(report)}.",
        *([] if stated else [RECORDS_ARE_PUBLIC]),
        f"Mechanisms: {mechanisms}.",
        f"Trust: {HOLDERS[trust].format(unit=total.unit)}.",
        *([f"The guarantee assumes: {'; '.join(assumed)}."] if assumed else []),
        "Software: privinf, secure noise.",
    ]
    return " ".join(sentences)


def _check_statable(total: PrivacyReport) -> None:
    """Raise NotAvailableError for releases whose guarantee does not fit the sentences of a statement."""
    if not total.entries:
        raise NotAvailableError("there is no statement, because nothing was released")
    if total.stamp:
        raise NotAvailableError(
            f"there is no statement, because the releases are not all private ({total.stamp}): make every "
            "release with secure noise, in a ledger of its own"
        )
    relations, units, trusts = (
        list(dict.fromkeys(values))
        for values in zip(
            *((entry.relation, entry.unit, entry.trust) for entry in total.entries), strict=True
        )
    )
    reasons = {
        "some release has a guarantee in metric privacy, which depends on the distance between two values of "
        "a unit": "metric" in relations,
        "bounds were taken from the data, and the guarantee does not cover them": (
            Assumptions.DATA_BOUNDS in total.assumptions
        ),
        "the response was released without noise, and the guarantee covers only the other columns": (
            total.response_in_clear
        ),
        f"the releases protect different units ({', '.join(units)})": len(units) > 1,
        f"the releases have different trust models ({', '.join(trusts)})": len(trusts) > 1,
        f"epsilon is infinite at delta = {total.default_delta:g}": math.isinf(total.epsilon()),
    }
    for reason, holds in reasons.items():
        if holds:
            raise NotAvailableError(NO_STATEMENT + reason + BY_HAND)


def _replaced(unit: str) -> str:
    """Return what neighboring tables differ in."""
    if unit in SINGLE_ROWS:
        return f"one {unit}"
    return "all rows of one site" if unit == "client" else f"all rows of one {unit}"


def _party_of(report: PrivacyReport) -> str:
    """Return the party that made all releases of a report; empty if there are several or none."""
    parties = {entry.party for entry in report.cumulative.entries}
    return parties.pop() if len(parties) == 1 else ""


def _releases_of(report: PrivacyReport) -> str:
    if party := _party_of(report):
        return f"The releases of party {party} satisfy"
    return "The releases satisfy" if report.subject in ("release", "ledger") else "The estimates satisfy"


def _guarantee(total: PrivacyReport) -> str:
    """Return the guarantee with figures that are rounded up; delta is 0 if every mechanism is pure."""
    if all(isinstance(entry.loss, PureLoss) for entry in total.entries):
        joint = total._total()
        worlds = joint.worlds if isinstance(joint, ParallelTotal) else (joint,)
        epsilon, delta = max(sum_up(world.pure) for world in worlds), 0.0
    else:
        epsilon, delta = total.epsilon(), total.default_delta
    return f"({rounded_up(epsilon, 4)}, {rounded_up(delta, 6)})-differential privacy"


def _extent(report: PrivacyReport) -> str:
    """Return which releases a statement covers, and which it leaves out."""
    number = len(report.cumulative.entries)
    releases = counted(number, "release")
    end = "this report was made" if report.subject in ("release", "ledger") else "this fit ended"
    if _party_of(report):
        return (
            f"for {releases} of this party; other releases about the same data, including those of other "
            "parties, add to it"
        )
    if not _has_ledger(report):
        return f"for {releases}; other releases about the same data add to it"
    if report.elsewhere:
        return (
            f"composed over {releases}: the releases that the ledger had when {end}, "
            f"{_including_others(report)}; other releases of that ledger add to it"
        )
    if number == 1:
        return f"for the only release that the ledger had when {end}"
    return f"composed over all {releases} that the ledger had when {end}"


def _has_ledger(report: PrivacyReport) -> bool:
    return report.budget is not None or report.recorded != report.entries


def _ledger_heading(report: PrivacyReport) -> str:
    return f"{LEDGER}, {_including_others(report)}" if report.elsewhere else LEDGER


def _including_others(report: PrivacyReport) -> str:
    return INCLUDING_OTHERS.format(
        counted(report.elsewhere, "release"), "was" if report.elsewhere == 1 else "were"
    )


def _heading(report: PrivacyReport) -> str:
    return KNOWN_ALONE if report.subject == "ledger" and report.budget is None else HEADINGS[report.subject]


def _facts(report: PrivacyReport) -> Facts:
    facts = _totals(report)
    if report.subject == "earlier release":
        facts.insert(0, ("spent by this fit", NOTHING_SPENT))
    mu = available(lambda: report.mu)
    if report.response_in_clear:
        facts.insert(0, ("warning", UNPROTECTED_RESPONSE))
    if report.stamp:
        facts.insert(0, ("warning", report.stamp))
    if math.isfinite(mu) and report.entries:
        power = 100.0 * float(ndtr(ndtri(0.05) + mu))
        facts.append(("in words", f"a test at level 5% {_between(report)} has power of at most {power:.1f}%"))
    if report.place:
        facts.append(("of the ledger", report.place))
    if report.entries:
        sources = ", ".join(dict.fromkeys(entry.source for entry in report.entries))
        facts += [
            ("unit", report.unit),
            ("neighbors", report.relation),
            ("trust model", report.trust),
            ("noise source", f"{sources} ({'secure' if report.secure else 'not private'})"),
        ]
    return facts


def _between(report: PrivacyReport) -> str:
    """Return the definition of neighboring data sets of the guarantee."""
    if report.relation == "zero-out":
        return f"between one {report.unit} that contributes data and one that contributes nothing"
    return f"between two values of one {report.unit}"


def _totals(report: PrivacyReport) -> Facts:
    mu = available(lambda: report.mu)
    rho = available(lambda: report.rho)
    facts = [("epsilon", f"{report.epsilon():.4g} at delta = {report.default_delta:g}")]
    for name, figure in (("mu (Gaussian DP)", mu), ("rho (zCDP)", rho)):
        facts.append((name, "not available" if math.isnan(figure) else f"{figure:.4g}"))
    return facts


def _running(report: PrivacyReport) -> Facts:
    limit = "none" if report.budget is None else str(report.budget)
    noise = [("noise", report.cumulative.stamp)] if report.cumulative.stamp else []
    return [("releases", str(len(report.recorded))), *_totals(report.cumulative), *noise, ("limit", limit)]


def _cells(report: PrivacyReport) -> list[tuple[str, ...]]:
    """Return a header and one line per release; equal ones that follow one another are one line."""
    header = ("label", "mechanism", *_FIGURES)
    frame = report.releases[list(header)]
    runs = groupby(tuple(map(_cell, row)) for row in frame.itertuples(index=False))
    counts = [(line, sum(1 for _ in same)) for line, same in runs]
    return [header, *((label + f", {times} times" * (times > 1), *rest) for (label, *rest), times in counts)]


def _party_cells(report: PrivacyReport) -> list[tuple[str, ...]]:
    """Return a header and one line per party; nothing where no release names its party."""
    frame = report.parties
    if frame.empty:
        return []
    lines = frame.reset_index().itertuples(index=False)
    return [("party", *frame.columns), *(tuple(map(_cell, line)) for line in lines)]


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "-" if math.isnan(value) else f"{value:.4g}"


def _indented(facts: Facts) -> list[str]:
    width = max(len(name) for name, _ in facts)
    return [f"  {name:<{width}}  {value}" for name, value in facts]


def _columns(cells: Sequence[tuple[str, ...]]) -> list[str]:
    """Align two columns of texts to the left, figures to the right."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    sides = ["<", "<", *[">"] * (len(widths) - 2)]
    lines = []
    for row in cells:
        padded = (f"{c:{side}{width}}" for c, side, width in zip(row, sides, widths, strict=True))
        lines.append("  " + "  ".join(padded))
    return lines


def _table(rows: Sequence[tuple[str, ...]], header: tuple[str, ...] = ()) -> str:
    def line(row: tuple[str, ...], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row) + "</tr>"

    head = line(header, "th") if header else ""
    return "<table>" + head + "".join(line(row, "td") for row in rows) + "</table>"
