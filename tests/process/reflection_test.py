"""Each role of a job that trains answers grpcurl and grpc_health_probe."""

import sys

sys.path.insert(0, "tests/process")
from support.jobs import Run, main
from support.reflection import check_reflection_and_health

JOB = """
name: "reflected"
model { transformer { width: 32 heads: 2 hidden: 48 layers: 2 } }
data { text { train: "book.txt" length: 12 columns: 4 } batch: 3 }
optimizer { sgd { rate: 0.02 } }
cluster { workers: 1 shards: 1 stages: 2 }
accumulate: 2
threads: 1
steps: 1000000
"""

SERVICES = {
    "coordinator": "parley.Coordinator",
    "shard-0": "parley.ParameterShard",
    "stage-0": "parley.RemoteReferences",
    "stage-1": "parley.RemoteReferences",
    "worker-0": "parley.Waits",
}


def every_role_serves_reflection_and_health(where, runs):
    (where / "book.txt").write_text("it was asked, and it answered. " * 80)
    job = where / "job.textproto"
    job.write_text(JOB)
    run = Run(job)
    runs.append(run)
    run.wait_for_step(1)
    addresses = run.addresses()
    assert addresses.keys() == SERVICES.keys(), addresses
    for name, address in addresses.items():
        check_reflection_and_health(address, SERVICES[name])
    print(f"{len(addresses)} processes say that they are well, and which services they have")


main(every_role_serves_reflection_and_health)
