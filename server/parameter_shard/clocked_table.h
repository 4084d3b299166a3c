#ifndef PARLEY_SERVER_PARAMETER_SHARD_CLOCKED_TABLE_H_
#define PARLEY_SERVER_PARAMETER_SHARD_CLOCKED_TABLE_H_

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/job/learning_rate.h"
#include "proto/job.pb.h"
#include "proto/parameter_shard.pb.h"
#include "server/parameter_shard/buffer.h"
#include "server/parameter_shard/parameter_table.h"
#include "server/parameter_shard/routing.h"

namespace parley {

// How stale updates were: counts by the highest staleness that falls into a bucket, the last one
// without limit. As a Prometheus histogram wants them.
struct StalenessCounts {
  static const std::vector<double>& Bounds();
  std::array<uint64_t, 13> buckets{};
  double sum = 0;

  void Add(uint64_t staleness);
  void Add(const StalenessCounts& others);
};

// A ParameterTable in bounded and async: applies each push as it comes, and keeps what makes it
// happen exactly once and what later calls refer to. A slice's version number is its own number of
// updates here. Owned by Shard; called under its lock.
class ClockedTable {
 public:
  // `table` must outlive it.
  ClockedTable(const JobConfig& job, ParameterTable* table, uint64_t training_samples);

  // Whose push or pull it is.
  struct Caller {
    uint32_t contributor = 0;
    uint32_t attempt = 0;
    uint64_t clock = 0;
  };

  // A slice of a push that TableSlice::Check has found right. scale: of gradients. seen: the
  // updates that its sender saw. takes_buffers: whether this contributor's buffers count.
  // DUPLICATE: it, or a later one of this contributor, was applied before. STALE: above the job's
  // max_staleness. Aborted, and nothing applied, where it is lent and has been written again.
  absl::StatusOr<PushOutcome> Push(const Caller& caller, const PartRange& range,
                                   const TensorSlice& data, double scale, uint64_t seen,
                                   bool takes_buffers);

  // A slice's values and how many updates they hold.
  struct Values {
    PinnedBuffer values;
    uint64_t updates = 0;
  };
  // The newest values; with clock 0 for nobody in particular. Where delays are compensated they
  // stay the caller's for its clock until it has pushed.
  Values PullNewest(uint32_t slice, const Caller& caller);
  // Those of the last NameVersion, or the start values while nothing has changed them. nullopt
  // where they are not there.
  std::optional<Values> PullNamed(uint32_t slice, uint64_t start_version, const Caller& caller);

  // Pins all values as they are; they replace those of the last time.
  void NameVersion();
  // Whether all values are those of the last NameVersion, or start values.
  bool unchanged() const { return unchanged_; }

  // Whether anything of the caller's clock has been applied here.
  bool HasPushOf(const Caller& caller) const;

  // The contributors of a new view, with their attempts: what was kept for others goes.
  void KeepOnly(const std::map<uint32_t, uint32_t>& present);

  const StalenessCounts& staleness() const { return staleness_; }
  uint64_t updates() const { return updates_; }

 private:
  struct Last {
    uint32_t attempt = 0;
    uint64_t clock = 0;
  };
  struct Pulled {
    uint32_t attempt = 0;
    uint64_t clock = 0;
    Values values;
  };
  struct OneSlice {
    std::map<uint32_t, Last> last;      // by contributor: the last push
    std::map<uint32_t, Pulled> pulled;  // by contributor, where delays are compensated
    std::optional<Values> named;
  };

  Values Keep(uint32_t slice, const Caller& caller, Values values);
  // Where a slice with so many updates stands: each worker's contribution is one.
  StepPlace PlaceOf(uint64_t updates) const;
  double RateFactor(const StepPlace& place, uint64_t staleness) const;

  const JobConfig job_;
  ParameterTable* const table_;
  const uint64_t workers_;
  const double epochs_;  // of data that one contribution of each worker uses
  const double lambda_;

  std::map<uint32_t, OneSlice> slices_;
  bool unchanged_ = true;
  uint64_t updates_ = 0;
  StalenessCounts staleness_;
};

}  // namespace parley

#endif  // PARLEY_SERVER_PARAMETER_SHARD_CLOCKED_TABLE_H_
