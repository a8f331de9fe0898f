r"""Options of the first-order private optimizers: full gradients, or gradients in a sketch (paper 3).

Every record is in one of B batches, fixed before the data are seen, and once in every epoch: E epochs cost a
record E releases of sensitivity 2C, for any B. A site is in every batch: as the unit of privacy it pays for
E B releases.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from privinf.error_boundary import error_boundaries
from privinf.errors import ArgumentError
from privinf.glm.dome.sketch import LearnedSpace, Probes
from privinf.registry import studied
from privinf.typing import Floats
from privinf.validation import check_choice, check_count, check_fraction, check_number, check_positive

OptimizerVariant = Literal["repaired", "paper"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DomeVariant:
    """What a variant of `DOME` does in its own way.

    Attributes
    ----------
    moments : bool
        Whether it centers, preconditions and takes Adam's steps where nothing else is requested.
    probes : {"unbiased", "orthonormal"}
    averages : bool
        Whether the last iterates are averaged.
    tracked : callable (sketched, gradient) -> ndarray
        The vector that the learned directions follow.
    learned : callable (space, vector, limit, energy) -> LearnedSpace
        The learned directions after one more vector.
    rescaled : callable (space, ratio) -> LearnedSpace
        The learned directions in the next round's units, `ratio` of this one's.
    """

    moments: bool
    probes: Probes
    averages: bool
    tracked: Callable[[Floats, Floats], Floats]
    learned: Callable[[LearnedSpace, Floats, int, float], LearnedSpace]
    rescaled: Callable[[LearnedSpace, Floats], LearnedSpace]


_VARIANTS: dict[OptimizerVariant, DomeVariant] = {
    "repaired": DomeVariant(
        moments=False,
        probes="unbiased",
        averages=True,
        tracked=lambda sketched, gradient: sketched,
        learned=lambda space, vector, limit, energy: space.track(vector, limit=limit, energy=energy),
        rescaled=LearnedSpace.rescaled,
    )
}


def register_variant(name: OptimizerVariant, variant: DomeVariant) -> None:
    """Add a variant of `DOME`; studies do this on import."""
    _VARIANTS[name] = variant


def dome_variant(variant: OptimizerVariant) -> DomeVariant:
    """Return what a variant does; "paper" is in studies.

    Raises
    ------
    NotAvailableError
        It is of studies, which cannot be imported here.
    """
    if variant not in _VARIANTS:
        studied(f"{variant}.dome", f"DOME(variant={variant!r})")
    return _VARIANTS[variant]


@error_boundaries
@dataclass(frozen=True, slots=True, kw_only=True)
class DPSGD:
    """Stochastic gradient ascent on clipped scores of full dimension.

    Parameters
    ----------
    epochs : int
        Number of times that every record takes part.
    batches : int
        Rounds per epoch; a batch has about n / batches records.
    step : float
        Size of a step, in units in which every bounded column is in [-1, 1].
    clip : float
        C, the largest norm of a record's (sketched) score; longer scores are shrunk to it. The noise grows
        with C. If C is smaller than the norm of a typical row in these units, many scores are clipped, and
        the fit solves the equation of clipped scores.
    average : float
        Share of the rounds, counted back from the last round, whose iterates are averaged; 0 for the last
        iterate alone.
    final_share : float
        Share of the budget (mu^2) that the final release gets. A fit that cannot have intervals has no final
        release, and its rounds use the total budget.

    Notes
    -----
    **Privacy.** Public settings. If you choose these settings by looking at private data, the choice costs
    additional privacy, which no ledger counts.
    """

    epochs: int = 5
    batches: int = 20
    step: float = 1.0
    clip: float = 4.0
    average: float = 0.5
    final_share: float = 0.8

    def __post_init__(self) -> None:
        check_count(self.epochs, "epochs")
        check_count(self.batches, "batches")
        check_positive(self.step, "step")
        check_positive(self.clip, "clip")
        check_number(self.average, "average", low=0.0, high=1.0, open_high=True)
        check_fraction(self.final_share, "final_share")


@error_boundaries
@dataclass(frozen=True, slots=True, kw_only=True)
class DPAdam(DPSGD):
    """Adam on clipped scores of full dimension, its second moment corrected for the noise.

    Parameters
    ----------
    epochs : int
        Number of times that every record takes part.
    batches : int
        Rounds per epoch; a batch has about n / batches records.
    step : float
        Size of a step, in units in which every bounded column is in [-1, 1].
    clip : float
        C, the largest norm of a record's (sketched) score; longer scores are shrunk to it. The noise grows
        with C. If C is smaller than the norm of a typical row in these units, many scores are clipped, and
        the fit solves the equation of clipped scores.
    average : float
        Share of the rounds, counted back from the last round, whose iterates are averaged; 0 for the last
        iterate alone.
    final_share : float
        Share of the budget (mu^2) that the final release gets. A fit that cannot have intervals has no final
        release, and its rounds use the total budget.

    Notes
    -----
    **Privacy.** Public settings. If you choose these settings by looking at private data, the choice costs
    additional privacy, which no ledger counts.
    """

    step: float = 0.02


@error_boundaries
@dataclass(frozen=True, slots=True, kw_only=True)
class RandomSketch(DPSGD):
    """Stochastic gradient ascent in a new random k-dimensional sketch every round (Chen et al. 2022).

    Parameters
    ----------
    k : int
        Number of values that a site sends per round.
    epochs : int
        Number of times that every record takes part.
    batches : int
        Rounds per epoch; a batch has about n / batches records.
    step : float
        Size of a step, in units in which every bounded column is in [-1, 1].
    clip : float
        C, the largest norm of a record's (sketched) score; longer scores are shrunk to it. The noise grows
        with C. If C is smaller than the norm of a typical row in these units, many scores are clipped, and
        the fit solves the equation of clipped scores.
    average : float
        Share of the rounds, counted back from the last round, whose iterates are averaged; 0 for the last
        iterate alone.
    final_share : float
        Share of the budget (mu^2) that the final release gets. A fit that cannot have intervals has no final
        release, and its rounds use the total budget.

    Notes
    -----
    **Privacy.** Public settings. If you choose these settings by looking at private data, the choice costs
    additional privacy, which no ledger counts.
    """

    k: int = 40

    def __post_init__(self) -> None:
        # super() without arguments does not work in slotted dataclasses
        DPSGD.__post_init__(self)
        check_count(self.k, "k")


@error_boundaries
@dataclass(frozen=True, slots=True, kw_only=True)
class DOME(DPSGD):
    """Stochastic gradient ascent in a sketch of learned directions and random probes.

    Parameters
    ----------
    k : int
        Number of columns of the sketch, which is also the number of values that a site sends per round.
    most_learned : int
        Largest number of learned directions.
    energy : float
        Share of the spectrum of past gradients that the learned directions explain.
    variant : {"repaired", "paper"}
        "repaired" scales the random probes so that the estimate of the gradient is unbiased, and takes steps
        along this estimate without centering or preconditioning. "paper" centers and preconditions the scores
        with Adam's moments and projects them. In the "paper" variant the learned directions follow the
        gradient itself, by one QR step instead of an exact decomposition, and the iterates of Adam's steps
        are not averaged. A model that is fitted with "paper" has a far larger value of the loss function than
        a model that is fitted with "repaired". The "paper" variant needs the repository's studies
        (``studies.paper.dome``), which are not in the wheel.
    centre, precondition : bool, optional
        Whether Adam's first moment is subtracted from the scores before clipping, and whether the scores are
        divided by the root of Adam's second moment. The variant sets the default.
    probes : {"unbiased", "orthonormal"}, optional
        Scaling of the random probes. The variant sets the default.
    adam : bool, optional
        Whether to take Adam's steps instead of plain gradient steps. The variant sets the default.
    epochs : int
        Number of times that every record takes part.
    batches : int
        Rounds per epoch; a batch has about n / batches records.
    step : float
        Size of a step, in units in which every bounded column is in [-1, 1].
    clip : float
        C, the largest norm of a record's (sketched) score; longer scores are shrunk to it. The noise grows
        with C. If C is smaller than the norm of a typical row in these units, many scores are clipped, and
        the fit solves the equation of clipped scores.
    average : float
        Share of the rounds, counted back from the last round, whose iterates are averaged; 0 for the last
        iterate alone. The paper variant averages nothing.
    final_share : float
        Share of the budget (mu^2) that the final release gets. A fit that cannot have intervals has no final
        release, and its rounds use the total budget.

    Notes
    -----
    **Privacy.** The settings are public, and the sketch and Adam's moments are functions of past releases.
    Replacing a record moves a sum by up to 2C; the paper uses C, the sensitivity to leaving out a record.

    The paper does not state two details of Adam's second moments. In `DOME` these moments are corrected for
    their start at 0, and are at least a tenth of the average variance of the noise. Sites are sent the
    learned directions and the probes' seed, not the sketch.

    References
    ----------
    "Communication efficient, differentially private distributed optimization using correlation-aware
    sketching", Algorithms 1 and 2.
    """

    k: int = 40
    most_learned: int = 5
    energy: float = 0.9
    variant: OptimizerVariant = "repaired"
    centre: bool | None = None
    precondition: bool | None = None
    probes: Probes | None = None
    adam: bool | None = None

    def __post_init__(self) -> None:
        DPSGD.__post_init__(self)
        if check_count(self.most_learned, "most_learned", least=0) >= check_count(self.k, "k"):
            raise ArgumentError(
                "most_learned= (directions kept from earlier rounds) must be less than k= (all "
                "directions of a round), so that some directions of each round are new"
            )
        check_fraction(self.energy, "energy")
        variant = dome_variant(check_choice(self.variant, OptimizerVariant, "variant"))
        for name in ("centre", "precondition", "adam"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, bool):
                raise ArgumentError(f"{name}= must be True or False")
            object.__setattr__(self, name, variant.moments if value is None else value)
        object.__setattr__(self, "probes", check_choice(self.probes or variant.probes, Probes, "probes"))
        if not variant.averages:
            object.__setattr__(self, "average", 0.0)


Optimizer: TypeAlias = DPSGD | DPAdam | RandomSketch | DOME
