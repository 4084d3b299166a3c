#ifndef PARLEY_CLIENT_TESTING_QUIET_MEMBERSHIP_H_
#define PARLEY_CLIENT_TESTING_QUIET_MEMBERSHIP_H_

#include <memory>
#include <optional>
#include <string>

#include "client/membership.h"

namespace parley {

// Member 9, worker 0 of a job in which nothing happens.
class QuietMembership final : public Membership {
 public:
  uint64_t member() const override { return 9; }
  uint32_t ordinal() const override { return 0; }
  CallHeader header() const override { return now; }
  std::shared_ptr<CoordinatorClient> coordinator() const override { return nullptr; }
  void Progress(uint64_t, uint64_t) override {}
  FirstCause Fail(const std::string&, bool) override { return {}; }
  void Preempt(const std::string&, absl::Duration) override {}
  std::optional<FirstCause> failure() const override { return std::nullopt; }
  void Leave() override {}

  CallHeader now;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_TESTING_QUIET_MEMBERSHIP_H_
