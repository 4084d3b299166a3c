"""Requests and replies between real processes are lost, repeated and delayed: the sums are exact all the same."""

import os
import sys

sys.path.insert(0, "tests/process")
from support.fault_proxy import FAULTS, FaultProxy
from support.integer_job import IntegerJob
from support.jobs import main


def sums_are_exact_under_faults(where, runs):
    seed = int(os.environ.get("PARLEY_TEST_SEED", "20261121"))
    print(f"seed {seed}")
    proxy = FaultProxy(seed, rate=0.2)
    try:
        # 240 samples by 40 in a step: 6 steps in an epoch.
        job = IntegerJob(where, workers=4, shards=2, epochs=10, liveness="20s", proxy=proxy)
        runs.append(job)
        ends = job.wait_for_end(list(job.processes), 240)
        assert all(code == 0 for code in ends.values()), ends
        for i in range(4):
            assert "the sums are exact" in job.log(f"worker-{i}"), i
        job.check_sums()
    finally:
        proxy.stop()
    # A proxy without faults would prove nothing: each kind has met the calls that carry a step.
    for fault in FAULTS:
        for method in ("Push", "Pull", "Complete"):
            assert proxy.count(fault, method) >= 1, (fault, method, proxy.counts)
    # The step leader's verdicts reach the other shard, and calls reach the coordinator, through it too.
    for method in ("Decide", "Watch", "Heartbeat", "ReportVerdicts"):
        assert sum(n for (m, _), n in proxy.counts.items() if m == method) > 0, method
    print(", ".join(f"{fault}: {proxy.count(fault)}" for fault in FAULTS), f"without: {proxy.count(None)}")


main(sums_are_exact_under_faults)
