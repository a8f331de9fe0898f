"""Attacks on identity, reduced (all: `benchmarks/identity_attacks.py`): refused, and the site is named."""

import pytest
from identity_fuzzer import KINDS, attack
from mutation import Mutant


@pytest.mark.audit
def test_nobody_passes_for_another(tmp_path):
    found = attack(tmp_path, 6 * len(KINDS), 20261124)
    assert not found.through, found.through[:5]
    assert set(found.refused) | {"repeated"} == set(KINDS)
    assert sum(found.refused.values()) + found.repeated == 6 * len(KINDS)


ENVELOPE, ASKERS = "federation.envelope", "federation.askers"
MUTANTS = {
    "the signature of a reply is not checked": Mutant(
        ASKERS, "ClientEnvelope._check", "not signed_by(verifying, signature, content)", "False"
    ),
    "the signature of a question is not checked": Mutant(
        ENVELOPE,
        "SiteEnvelope.admitted",
        "not signed_by(envelope.analyst, envelope.signature, envelope.signed)",
        "False",
    ),
    "no signature is one of the analyst's": Mutant(
        ENVELOPE, "SiteEnvelope.admitted", "envelope.signature and analyst.key", "analyst.key"
    ),
    "an envelope serves for any question": Mutant(
        ENVELOPE, "SiteEnvelope.answer", "envelope.nonce and not envelope.fits(query)", "False"
    ),
    "an envelope serves for any site": Mutant(
        ENVELOPE, "SiteEnvelope.admitted", 'envelope.site not in ("", self._name)', "False"
    ),
    "a reply is bound to no question": Mutant(
        ENVELOPE, "answered_text", '"question": envelope.digest, "nonce": envelope.nonce, ', ""
    ),
    "a reply is not bound to what it says": Mutant(
        ENVELOPE, "answered_text", "message_digest(*reply.pack())", '""'
    ),
    "heads that nobody signed are believed": Mutant(
        ENVELOPE, "SiteEnvelope._take", "not head.belongs_to(name, self._roster.verifying[name])", "False"
    ),
}


@pytest.mark.audit
@pytest.mark.parametrize("name", MUTANTS)
def test_the_attacks_see_what_is_not_checked(name, tmp_path):
    with MUTANTS[name].applied():
        assert attack(tmp_path, 6 * len(KINDS), 3).through
