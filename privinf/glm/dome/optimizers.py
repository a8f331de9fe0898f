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
    """Stochastic gradient ascent on clipped scores without a sketch (DP-SGD).

    Parameters
    ----------
    epochs : int
        Number of epochs: every record is in this number of batches.
    batches : int
        Number of rounds per epoch. A batch has about n / batches records.
    step : float
        Size of a step, in units in which the bounds of every column are [-1, 1].
    clip : float
        C, the largest norm of the (sketched) score of a record. A longer score is shrunk to norm C. The noise
        grows with C. If C is smaller than the norm of a typical row in these units, many scores are clipped.
        The fit then solves the estimating equation of the clipped scores, which has a different root.
    average : float
        Share of the last rounds whose iterates are averaged: 0.5 averages the second half of the rounds, and
        0 returns the last iterate.
    final_share : float
        Share of the budget (in mu^2) that is spent on the final release. A fit that cannot have intervals has
        no final release, and its rounds use the total budget.

    Notes
    -----
    **Privacy.** The settings are public. If you choose these settings by looking at private data, the choice
    costs additional privacy, which no ledger counts.
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
    """Adam on clipped scores without a sketch; its second moment is corrected for the noise.

    Parameters
    ----------
    epochs : int
        Number of epochs: every record is in this number of batches.
    batches : int
        Number of rounds per epoch. A batch has about n / batches records.
    step : float
        Size of a step, in units in which the bounds of every column are [-1, 1].
    clip : float
        C, the largest norm of the (sketched) score of a record. A longer score is shrunk to norm C. The noise
        grows with C. If C is smaller than the norm of a typical row in these units, many scores are clipped.
        The fit then solves the estimating equation of the clipped scores, which has a different root.
    average : float
        Share of the last rounds whose iterates are averaged: 0.5 averages the second half of the rounds, and
        0 returns the last iterate.
    final_share : float
        Share of the budget (in mu^2) that is spent on the final release. A fit that cannot have intervals has
        no final release, and its rounds use the total budget.

    Notes
    -----
    **Privacy.** The settings are public. If you choose these settings by looking at private data, the choice
    costs additional privacy, which no ledger counts.
    """

    step: float = 0.02


@error_boundaries
@dataclass(frozen=True, slots=True, kw_only=True)
class RandomSketch(DPSGD):
    """Stochastic gradient ascent on a random k-dimensional sketch, new in every round (Chen et al. 2022).

    Parameters
    ----------
    k : int
        Number k of values that a site sends per round, which is the dimension of the sketch.
    epochs : int
        Number of epochs: every record is in this number of batches.
    batches : int
        Number of rounds per epoch. A batch has about n / batches records.
    step : float
        Size of a step, in units in which the bounds of every column are [-1, 1].
    clip : float
        C, the largest norm of the (sketched) score of a record. A longer score is shrunk to norm C. The noise
        grows with C. If C is smaller than the norm of a typical row in these units, many scores are clipped.
        The fit then solves the estimating equation of the clipped scores, which has a different root.
    average : float
        Share of the last rounds whose iterates are averaged: 0.5 averages the second half of the rounds, and
        0 returns the last iterate.
    final_share : float
        Share of the budget (in mu^2) that is spent on the final release. A fit that cannot have intervals has
        no final release, and its rounds use the total budget.

    Notes
    -----
    **Privacy.** The settings are public. If you choose these settings by looking at private data, the choice
    costs additional privacy, which no ledger counts.
    """

    k: int = 40

    def __post_init__(self) -> None:
        # super() without arguments does not work in slotted dataclasses
        DPSGD.__post_init__(self)
        check_count(self.k, "k")


@error_boundaries
@dataclass(frozen=True, slots=True, kw_only=True)
class DOME(DPSGD):
    """Stochastic gradient ascent on a sketch of the scores: learned directions and random probes.

    Parameters
    ----------
    k : int
        Number of columns of the sketch. A site sends this number of values per round.
    most_learned : int
        Largest number of learned directions.
    energy : float
        Share of the spectrum of past gradients that the learned directions must explain.
    variant : {"repaired", "paper"}
        Variant of the algorithm. With "repaired" the random probes are scaled so that the estimate of the
        gradient is unbiased, and every step follows this estimate without centering or preconditioning. With
        "paper" the scores are centered and preconditioned with Adam's moments, and then projected. In the
        "paper" variant the learned directions follow the gradient itself, by one QR step instead of an exact
        decomposition, and the iterates of Adam's steps are not averaged. The loss of a model that is fitted
        with "paper" is far larger than the loss of a model that is fitted with "repaired". The "paper"
        variant needs the module ``studies.paper.dome``, which is in the repository and not in the wheel.
    centre, precondition : bool, optional
        Whether Adam's first moment is subtracted from the scores before clipping, and whether the scores are
        divided by the root of Adam's second moment. The default depends on `variant`.
    probes : {"unbiased", "orthonormal"}, optional
        Scaling of the random probes. The default depends on `variant`.
    adam : bool, optional
        Whether to use the steps of Adam instead of plain gradient steps. The default depends on `variant`.
    epochs : int
        Number of epochs: every record is in this number of batches.
    batches : int
        Number of rounds per epoch. A batch has about n / batches records.
    step : float
        Size of a step, in units in which the bounds of every column are [-1, 1].
    clip : float
        C, the largest norm of the (sketched) score of a record. A longer score is shrunk to norm C. The noise
        grows with C. If C is smaller than the norm of a typical row in these units, many scores are clipped.
        The fit then solves the estimating equation of the clipped scores, which has a different root.
    average : float
        Share of the last rounds whose iterates are averaged: 0.5 averages the second half of the rounds, and
        0 returns the last iterate. The paper variant averages nothing.
    final_share : float
        Share of the budget (in mu^2) that is spent on the final release. A fit that cannot have intervals has
        no final release, and its rounds use the total budget.

    Notes
    -----
    **Privacy.** The settings are public. The sketch and Adam's moments are computed from earlier releases and
    public numbers only. Replacing a record changes a sum of scores by at most 2C, which is the sensitivity
    used here. The paper uses C, the sensitivity to leaving out a record.

    The paper does not state two details of Adam's second moments. In `DOME` these moments are corrected for
    their initial value of 0, and they are at least a tenth of the average variance of the noise. The server
    sends the learned directions and the seed of the probes to the sites, and not the sketch itself.

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
