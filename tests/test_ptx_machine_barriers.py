"""Barriers of warps, CTAs and clusters; mbarriers; races, phases and deadlocks."""

import numpy as np
import pytest

from tests.ptx_machine import (
    AccessError,
    BarrierError,
    DeadlockError,
    RaceError,
    TrapError,
)
from tests.ptx_machine.harness import execute, kernel

SEEDS = range(3)
EXCHANGE = """
ld.param.u64 d0, [a]; mov.u32 r0, %tid.x; mov.u32 r9, smem; shl.b32 r1, r0, 2; add.u32 r1, r1, r9;
st.shared.u32 [r1], r0;
bar.sync 0;
xor.b32 r2, r0, 96; shl.b32 r3, r2, 2; add.u32 r3, r3, r9; ld.shared.u32 r4, [r3];
mad.wide.u32 d1, r0, 4, d0; st.global.u32 [d1], r4;
"""


def launch(body: str, seed: int = 0, block: int = 128, size: int = 128, **options) -> np.ndarray:
    out = np.zeros(size, np.uint32)
    directives = options.pop("directives", "")
    text = kernel("u64 a", body, directives)
    execute(text, block=block, args=[out], smem_bytes=8192, seed=seed, **options)
    return out


@pytest.mark.parametrize("seed", SEEDS)
def test_bar_sync_orders_shared_memory(seed):
    np.testing.assert_array_equal(launch(EXCHANGE, seed), np.arange(128) ^ 96)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("weaker", ["", "bar.warp.sync -1;", "fence.acq_rel.cta;"])
def test_reading_without_a_barrier_is_a_race(seed, weaker):
    with pytest.raises(RaceError):
        launch(EXCHANGE.replace("bar.sync 0;", weaker), seed, check_uninitialised=False)


NAMED = """
ld.param.u64 d0, [a]; mov.u32 r0, %tid.x; shr.u32 r1, r0, 5; setp.ne.u32 p1, r1, 0;
mov.u32 r5, smem;
@p1 bra CONSUMER;
st.shared.u32 [r5], 77;
bar.arrive 3, 64;
bra END;
CONSUMER: setp.ne.u32 p2, r1, 1;
@p2 bra END;
bar.sync 3, 64;
ld.shared.u32 r2, [r5]; st.global.u32 [d0], r2;
END:
"""


@pytest.mark.parametrize("seed", SEEDS)
def test_named_barrier_arrive_then_sync(seed):
    assert launch(NAMED, seed)[0] == 77


def test_named_barrier_counts_must_agree():
    with pytest.raises(BarrierError, match="earlier arrivals"):
        for seed in SEEDS:
            launch(NAMED.replace("bar.sync 3, 64", "bar.sync 3, 96"), seed)


def test_deadlock_lists_who_waits():
    with pytest.raises(DeadlockError, match=r"warp 1 .* barrier 3 \(32 of 64"):
        launch(NAMED.replace("bar.arrive 3, 64;", ""))


def test_barrier_reduction():
    body = """
    ld.param.u64 d0, [a]; mov.u32 r0, %tid.x; setp.lt.u32 p1, r0, 50;
    bar.red.popc.u32 r1, 0, p1; bar.red.and.pred p2, 0, p1; selp.u32 r2, 1000, 0, p2;
    add.u32 r1, r1, r2; mad.wide.u32 d1, r0, 4, d0; st.global.u32 [d1], r1;
    """
    assert (launch(body) == 50).all()


WAIT = "mbarrier.try_wait.parity.shared::cta.b64"
PIPELINE = """
ld.param.u64 d0, [a]; mov.u32 r0, %tid.x; mov.u32 r5, smem; shr.u32 r1, r0, 5;
setp.ne.u32 p1, r0, 0; mov.u32 r6, 0; mov.u32 r7, 0;
@p1 bra READY;
mbarrier.init.shared::cta.b64 [r5], 32; mbarrier.init.shared::cta.b64 [r5+8], 32;
READY: bar.sync 0;
shl.b32 r8, r0, 2; and.b32 r8, r8, 127; add.u32 r8, r8, r5; mad.wide.u32 d1, r0, 4, d0;
setp.ne.u32 p1, r1, 0;
@p1 bra CONSUMER;
xor.b32 r7, r7, 1;
PRODUCER: mbarrier.try_wait.parity.shared::cta.b64 p2, [r5+8], r7;
@!p2 bra PRODUCER;
st.shared.u32 [r8+128], r6;
mbarrier.arrive.shared::cta.b64 _, [r5];
xor.b32 r7, r7, 1; add.u32 r6, r6, 1; setp.lt.u32 p2, r6, 5;
@p2 bra PRODUCER;
bra END;
CONSUMER: mbarrier.try_wait.parity.shared::cta.b64 p2, [r5], r7;
@!p2 bra CONSUMER;
ld.shared.u32 r9, [r8+128]; add.u32 r10, r10, r9;
mbarrier.arrive.shared::cta.b64 _, [r5+8];
xor.b32 r7, r7, 1; add.u32 r6, r6, 1; setp.lt.u32 p2, r6, 5;
@p2 bra CONSUMER;
st.global.u32 [d1], r10;
END:
""".replace("mov.u32 r7, 0;", "mov.u32 r7, 0; mov.u32 r10, 0;")


@pytest.mark.parametrize("seed", SEEDS)
def test_mbarrier_pipeline(seed):
    assert (launch(PIPELINE, seed, block=64)[32:64] == 10).all()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (f"PRODUCER: {WAIT} p2, [r5+8], r7;\n@!p2 bra PRODUCER;", "PRODUCER:"),
        (f"CONSUMER: {WAIT} p2, [r5], r7;\n@!p2 bra CONSUMER;", "CONSUMER:"),
        ("@p1 bra CONSUMER;", "@p1 xor.b32 r7, r7, 1;\n@p1 bra CONSUMER;"),
        ("PRODUCER:", "xor.b32 r7, r7, 1;\nPRODUCER:"),
        ("mbarrier.arrive.shared::cta.b64 _, [r5+8];", ""),
        ("arrive.shared::cta.b64 _, [r5];", "arrive.relaxed.cta.shared.b64 _, [r5];"),
        ("[r5+8], 32;", "[r5+8], 33;"),
        ("READY: bar.sync 0;", "READY:"),
    ],
)
def test_mbarrier_mutants_are_caught(seed, old, new):
    mutant = PIPELINE.replace(old, new, 1)
    assert mutant != PIPELINE
    with pytest.raises((RaceError, DeadlockError, BarrierError)):
        launch(mutant, seed, block=64, check_uninitialised=False)


CLUSTER = """
ld.param.u64 d0, [a]; mov.u32 r0, %tid.x; mov.u32 r1, %cluster_ctarank; xor.b32 r2, r1, 1;
mov.u32 r3, smem; add.u32 r4, r1, 100; shl.b32 r5, r0, 2; add.u32 r5, r5, r3;
mapa.shared::cluster.u32 r6, r5, r2;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
st.shared::cluster.u32 [r6], r4;
barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
ld.shared.u32 r7, [r5]; mad.lo.u32 r8, r1, 32, r0; mad.wide.u32 d1, r8, 4, d0;
st.global.u32 [d1], r7;
"""


@pytest.mark.parametrize("seed", SEEDS)
def test_cluster_barrier_orders_remote_stores(seed):
    options = {"block": 32, "grid": 2, "directives": ".reqnctapercluster 2,1,1"}
    got = launch(CLUSTER, seed, **options)
    assert got[:64].tolist() == [101] * 32 + [100] * 32


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("barrier.cluster.arrive.release.aligned", "barrier.cluster.arrive.relaxed.aligned"),
        ("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;", ""),
    ],
)
def test_cluster_mutants_are_caught(seed, old, new):
    with pytest.raises((RaceError, AccessError)):
        launch(
            CLUSTER.replace(old, new),
            seed,
            block=32,
            grid=2,
            directives=".reqnctapercluster 2,1,1",
            check_uninitialised=False,
        )


def test_remote_access_needs_a_barrier_before_the_owner_exits():
    body = """
    mov.u32 r1, %cluster_ctarank; mov.u32 r3, smem; xor.b32 r2, r1, 1;
    mapa.shared::cluster.u32 r6, r3, r2;
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    st.shared::cluster.u32 [r6], r1;
    """
    options = {"block": 32, "grid": 2, "directives": ".reqnctapercluster 2,1,1"}
    for seed in SEEDS:
        with pytest.raises(Exception, match="exit"):
            launch(body, seed, **options)
        launch(body + "barrier.cluster.arrive.relaxed; barrier.cluster.wait;", seed, **options)


def test_registers_move_between_warpgroups():
    body = """
    mov.u32 r0, %tid.x; shr.u32 r1, r0, 7; shfl.sync.idx.b32 r1, r1, 0, 31, -1;
    setp.ne.u32 p1, r1, 0;
    @p1 bra MORE;
    setmaxnreg.dec.sync.aligned.u32 24;
    bra END;
    MORE: setmaxnreg.inc.sync.aligned.u32 240;
    END:
    """
    launch(body, block=384, directives=".reqntid 384,1,1")
    with pytest.raises(DeadlockError, match="registers"):
        launch(body.replace("dec.sync.aligned.u32 24", "dec.sync.aligned.u32 40"), block=384,
               directives=".reqntid 384,1,1")  # fmt: skip


def test_flag_with_release_and_acquire_orders_shared_memory():
    body = """
    ld.param.u64 d0, [a]; mov.u32 r0, %tid.x; mov.u32 r5, smem; setp.ne.u32 p3, r0, 0;
    @p3 bra A;
    st.shared.u32 [r5], 0;
    A: bar.sync 0;
    setp.ge.u32 p1, r0, 32;
    @p1 bra WAIT;
    @p3 bra END;
    st.shared.u32 [r5+4], 9; st.release.cta.shared.u32 [r5], 1;
    bra END;
    WAIT: ld.acquire.cta.shared.u32 r1, [r5]; setp.eq.u32 p2, r1, 0;
    @p2 bra WAIT;
    ld.shared.u32 r2, [r5+4]; st.global.u32 [d0], r2;
    END:
    """
    for seed in SEEDS:
        assert launch(body, seed, block=64)[0] == 9
        with pytest.raises(RaceError):
            mutant = body.replace("st.release.cta", "st.relaxed.cta")
            launch(mutant, seed, block=64)


def test_traps_and_endless_spins_end_the_run():
    with pytest.raises(TrapError):
        launch("trap;")
    with pytest.raises(BarrierError, match="no mbarrier"):
        launch("mov.u32 r5, smem; mbarrier.arrive.shared::cta.b64 _, [r5];", block=32)
