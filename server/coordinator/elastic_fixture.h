#ifndef PARLEY_SERVER_COORDINATOR_ELASTIC_FIXTURE_H_
#define PARLEY_SERVER_COORDINATOR_ELASTIC_FIXTURE_H_

// For tests of a coordinator whose workers come and go.

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "server/coordinator/coordinator.h"
#include "server/coordinator/coordinator_fixture.h"

namespace parley {

inline CoordinatorCore::Options Elastic(uint32_t workers, uint32_t min_workers,
                                        LostWorker lost_worker) {
  auto options = CoordinatorFixture::DefaultOptions(2, workers);
  options.job.mutable_cluster()->set_min_workers(min_workers);
  options.job.mutable_consistency()->mutable_sync()->set_lost_worker(lost_worker);
  return options;
}

// The contributors of the view with the members behind them.
using Places = std::vector<std::pair<uint32_t, uint64_t>>;
inline Places PlacesOf(const ClusterView& view) {
  Places places;
  for (const Contributor& one : view.contributors()) {
    places.push_back({one.ordinal(), one.part_members(0)});
  }
  return places;
}

inline uint64_t Id(const CoordinatorFixture::Process* process) { return process->header.member(); }

inline void Park(CoordinatorFixture& job, CoordinatorFixture::Process& process) {
  process.seen_revision = 0;
  job.Watch(process);
  job.Watch(process);
  ASSERT_FALSE(process.watched.has_value());
}

// Silent until its lease is over.
inline void Lose(CoordinatorFixture& job, CoordinatorFixture::Process& process) {
  process.alive = false;
  job.Pass(absl::Seconds(11));
}

// Goes on until the data is used up, and knows the view.
inline void TrainToTheEnd(CoordinatorFixture& job) {
  job.LearnView();
  while (job.core.progress().position().epoch() < 2) {
    ASSERT_TRUE(job.Report(*job.shards[0], {job.NextVerdict()}).ok());
  }
}

}  // namespace parley

#endif  // PARLEY_SERVER_COORDINATOR_ELASTIC_FIXTURE_H_
