"""What Flower's SecAgg+ does with seeds, shares and keys: ``python benchmarks/peers/flower_masks.py``.

The functions of the installed flwr (extra ``flower``) are called as they are; nothing is run over a network.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
from flwr.common.secure_aggregation.crypto.shamir import combine_shares, create_shares
from flwr.common.secure_aggregation.crypto.symmetric_encryption import generate_shared_key
from flwr.common.secure_aggregation.quantization import dequantize, quantize
from flwr.common.secure_aggregation.secaggplus_constants import Key
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen
from flwr.supercore.differential_privacy import add_gaussian_noise_inplace
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes

sys.path.insert(0, str(Path(__file__).parents[1]))
from tables import RESULTS, write_table

client = importlib.import_module("flwr.client.mod.secure_aggregation.secaggplus_mod")
PAIRS, MODULUS = 20_000, 2**32
CLIENTS, THRESHOLD = 5, 3
CLIP, LEVELS = 8.0, 2**22


def folded(key: bytes) -> int:
    """Return the seed that `pseudo_rand_gen` makes of a key: the XOR of its words of 32 bits."""
    return int(np.bitwise_xor.reduce(np.frombuffer(key, dtype="<u4")))


def seed_bits() -> tuple[int, float]:
    """Return how many bits of a pair's seed ever vary, and the seconds to try all such seeds on one core."""
    seeds, (own, _) = [], generate_key_pairs()
    for _ in range(PAIRS):
        key = generate_shared_key(own, generate_key_pairs()[1])
        seeds.append(folded(key))
    key_mask = pseudo_rand_gen(key, MODULUS, [(3,)])[0]
    seed_mask = pseudo_rand_gen(seeds[-1].to_bytes(4, "little"), MODULUS, [(3,)])[0]
    assert np.array_equal(key_mask, seed_mask), "the seed is not what the mask is made of"
    varying = np.bitwise_or.reduce(seeds) ^ np.bitwise_and.reduce(seeds)
    bits, started = int(varying).bit_count(), time.process_time()
    for seed in range(PAIRS):
        pseudo_rand_gen(seed.to_bytes(4, "little"), MODULUS, [(2,)])
    return bits, 2.0**bits * (time.process_time() - started) / PAIRS


def shares_handed_out() -> str:
    """Ask clients for both kinds of shares of one client at once, as `unmask` does of an active and a dead one."""
    seed, key = os.urandom(32), os.urandom(32)
    shares = zip(create_shares(seed, THRESHOLD, CLIENTS), create_shares(key, THRESHOLD, CLIENTS), strict=True)
    answers = []
    for node, (of_seed, of_key) in enumerate(shares):
        state = client.SecAggPlusState()
        state.nid, state.threshold = node, 1
        state.rd_seed_share_dict, state.sk1_share_dict = {0: of_seed}, {0: of_key}
        asked = {Key.ACTIVE_NODE_ID_LIST: [0], Key.DEAD_NODE_ID_LIST: [0]}
        answers.append(client._unmask(state, asked)[Key.SHARE_LIST])
    found = [combine_shares([answer[i] for answer in answers[:THRESHOLD]]) for i in (0, 1)]
    return "both given" if found == [seed, key] else "refused"


def strangers_keys() -> str:
    """Show a client public keys that the relaying server made itself."""
    state = client.SecAggPlusState()
    state.nid = 0
    setup = {
        Key.SAMPLE_NUMBER: CLIENTS,
        Key.SHARE_NUMBER: CLIENTS,
        Key.THRESHOLD: THRESHOLD,
        Key.CLIPPING_RANGE: CLIP,
        Key.TARGET_RANGE: LEVELS,
        Key.MOD_RANGE: MODULUS,
        Key.MAX_WEIGHT: 1.0,
    }
    own = client._setup(state, setup)
    keys = {"0": [own[Key.PUBLIC_KEY_1], own[Key.PUBLIC_KEY_2]]}
    for node in range(1, CLIENTS):
        keys[str(node)] = [public_key_to_bytes(generate_key_pairs()[1]) for _ in range(2)]
    answer = client._share_keys(state, keys)
    return "accepted" if len(answer[Key.CIPHERTEXT_LIST]) == CLIENTS - 1 else "refused"


def beyond_the_clip() -> float:
    """Return what a value of 100 comes out as."""
    return float(dequantize(quantize([np.array([100.0])], CLIP, LEVELS), CLIP, LEVELS)[0][0])


def low_bits(value: float) -> float:
    """Return how often the value plus Flower's Gaussian noise, sd 1, is no multiple of 2^-53."""
    noisy = np.full(100_000, value)
    add_gaussian_noise_inplace([noisy], 1.0)
    return float(np.mean(noisy * 2.0**53 != np.rint(noisy * 2.0**53)))


def main() -> None:
    logging.disable(logging.INFO)
    started = time.time()
    bits, seconds = seed_bits()
    rows = [
        {"question": f"bits of a pair's seed that vary, over {PAIRS:,} pairs", "answer": f"{bits} of 32"},
        {
            "question": "seconds to make the first numbers of the masks of all such seeds, one core",
            "answer": seconds,
        },
        {"question": "shares of one client, called active and dead at once", "answer": shares_handed_out()},
        {
            "question": "public keys that the server made, shown to a client as other clients'",
            "answer": strangers_keys(),
        },
        {
            "question": f"a value of 100 with clipping_range {CLIP:g}: comes out as, without an error",
            "answer": beyond_the_clip(),
        },
        {
            "question": "its Gaussian noise, sd 1: how often no multiple of 2^-53, added to 0 and to 1",
            "answer": f"{low_bits(0.0):.4f}, {low_bits(1.0):.4f}",
        },
    ]
    write_table(
        RESULTS / "peers_flower.md",
        f"Flower {version('flwr')}: SecAgg+",
        "benchmarks/peers/flower_masks.py",
        rows,
        time.time() - started,
        "A mask of Mersenne-twister numbers hides a vector from a server that does not know its seed; a seed of so few "
        "bits can be tried out wherever two of the hidden numbers are known or can be guessed. If the server requests both shares, clients without checks allow it to remove both masks.",
    )


if __name__ == "__main__":
    main()
