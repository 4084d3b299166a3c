#ifndef PARLEY_SERVER_COORDINATOR_EVALUATIONS_H_
#define PARLEY_SERVER_COORDINATOR_EVALUATIONS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "proto/coordinator.pb.h"
#include "proto/coordinator_log.pb.h"

namespace parley {

// Evaluations of versions, each put together from one part of every worker. One is whole, and told,
// only if the sample counts of its parts add up to the test set. Owned by CoordinatorCore, under
// its lock.
//
// Once workers change, a part may never come: its worker is gone, and nobody has taken its place
// before the shards gave that version up. Nobody waits for such an evaluation: it is left out, and
// counted as incomplete. So it is with parts that have more samples together than the test set has.
// Neither is the fault of the one who reports last, who is answered OK.
//
// All of it is in each record of the coordinator's log, for as long as the job lasts. So the parts
// of a version are kept no longer than somebody may add to them: of a whole one there is the sum,
// of one that was given up the version. What still comes of either is answered OK, and changes
// nothing.
class Evaluations {
 public:
  // Of a job with so many workers and test samples.
  void Start(uint32_t workers, uint64_t test_samples);

  // From now on others stand behind the contributors than at the start.
  void WorkersChanged() { fixed_ = false; }

  // Later versions are made again, and so are their evaluations.
  void RollBack(uint64_t version);

  // Repeating a part changes nothing. INVALID_ARGUMENT, without effect, if there is no test set,
  // or, until the version is whole or given up, the worker reported something else for it, or, as
  // long as the workers are those of the start, the parts do not add up.
  absl::Status Add(const Member& worker, const Evaluation& part);

  // For the log. Read: after Start (and WorkersChanged); also what an earlier release has written,
  // which kept the parts of whole ones too.
  void Write(CoordinatorState& state) const;
  void Read(const CoordinatorState& state);

  // Rises with each part that was taken.
  uint64_t parts() const { return parts_; }

  // Whole ones, by version.
  std::vector<Evaluation> Whole() const;
  // The versions of the others.
  std::vector<uint64_t> Incomplete() const;

  // A version that is not whole when so many later ones are is given up: a part of it may come
  // later than those of the next version, from one that is slow and has been sent away, but not for
  // ever.
  static constexpr size_t kLaterWhole = 8;
  // The oldest ones are given up where these have more parts. So a record stays far below what one
  // may have, in a job in which none ever gets whole.
  static constexpr size_t kMostParts = 65536;

 private:
  struct Part {
    uint64_t member = 0;
    Evaluation numbers;
  };
  struct Parts {
    std::map<uint32_t, Part> by_ordinal;
    Evaluation sum;
  };
  static void AddUp(Parts& parts);
  // Keeps the sum alone if it is of the whole test set.
  void CloseIfWhole(std::map<uint64_t, Parts>::iterator found);
  void GiveUpOld();

  bool fixed_ = true;
  uint32_t workers_ = 0;
  uint64_t test_samples_ = 0;
  uint64_t parts_ = 0;
  std::map<uint64_t, Parts> open_;  // by version, as are the others
  size_t open_parts_ = 0;           // of all of these
  std::map<uint64_t, Evaluation> whole_;
  std::set<uint64_t> given_up_;
};

}  // namespace parley

#endif  // PARLEY_SERVER_COORDINATOR_EVALUATIONS_H_
