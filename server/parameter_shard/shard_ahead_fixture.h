#ifndef PARLEY_SERVER_PARAMETER_SHARD_SHARD_AHEAD_FIXTURE_H_
#define PARLEY_SERVER_PARAMETER_SHARD_SHARD_AHEAD_FIXTURE_H_

#include <gtest/gtest.h>

#include <functional>

#include "server/parameter_shard/shard.h"
#include "server/parameter_shard/shard_fixture.h"

namespace parley::testing {

// For tests of updates that are computed before their step is decided: a shard that hands them out,
// however small.
inline ShardResources Ahead() {
  ShardResources resources;
  resources.ahead = [](const std::function<void()>&) { ADD_FAILURE() << "a core has no threads"; };
  resources.ahead_from = 1;
  return resources;
}

inline JobConfig WithAhead(JobConfig job, bool ahead = true) {
  job.mutable_consistency()->mutable_sync()->set_update_ahead(ahead);
  return job;
}

inline JobConfig AdamJob() {
  JobConfig job = MeanJob();
  Adam* const adam = job.mutable_optimizer()->mutable_adam();
  adam->set_rate(0.01);
  adam->set_beta1(0.9);
  adam->set_beta2(0.999);
  adam->set_epsilon(1e-8);
  return job;
}

inline void MakeRoom(Shard& shard) {
  if (const auto reservation = shard.TakeReservation()) reservation();
}

}  // namespace parley::testing

#endif  // PARLEY_SERVER_PARAMETER_SHARD_SHARD_AHEAD_FIXTURE_H_
