#include "tests/simulation/coordinator_load.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "absl/strings/str_format.h"
#include "client/forwarding_coordinator.h"

namespace parley {
namespace {

absl::Duration ProcessorTime() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return absl::DurationFromTimespec(now);
}

uint64_t BytesOf(const google::protobuf::MessageLite& reply) { return reply.ByteSizeLong(); }
uint64_t BytesOf(const SharedJobState& reply) { return BytesOf(*reply); }

double KiB(uint64_t bytes) { return static_cast<double>(bytes) / 1024; }

}  // namespace

class CoordinatorLoad::Listener final : public ForwardingCoordinator<CoordinatorLoad::Listener> {
 public:
  Listener(CoordinatorLoad* load, std::shared_ptr<CoordinatorClient> to,
           std::function<absl::Time()> now)
      : load_(load), to_(std::move(to)), now_(std::move(now)) {}

  template <class Request, class Reply>
  void Forward(CoordinatorMethod<Request, Reply> method, const Request& request,
               absl::Time deadline, Done<Reply> done) {
    const std::string& name = Request::descriptor()->name();
    Count(name, {1, request.ByteSizeLong(), 0});
    Done<Reply> counted = [load = load_, now = now_, &name,
                           done = std::move(done)](absl::StatusOr<Reply> reply) {
      const Counts sent = {0, 0, reply.ok() ? BytesOf(*reply) : 0};
      load->methods_[name].Add(sent);
      load->seconds_[absl::ToUnixSeconds(now())].Add(sent);
      done(std::move(reply));
    };
    const absl::Duration before = ProcessorTime();
    (to_.get()->*method)(request, deadline, std::move(counted));
    load_->processor_time_ += ProcessorTime() - before;
  }

 private:
  void Count(const std::string& name, const Counts& more) {
    load_->methods_[name].Add(more);
    load_->seconds_[absl::ToUnixSeconds(now_())].Add(more);
  }

  CoordinatorLoad* const load_;
  const std::shared_ptr<CoordinatorClient> to_;
  const std::function<absl::Time()> now_;
};

std::shared_ptr<CoordinatorClient> CoordinatorLoad::Listen(
    std::shared_ptr<CoordinatorClient> coordinator, std::function<absl::Time()> now) {
  return std::make_shared<Listener>(this, std::move(coordinator), std::move(now));
}

CoordinatorLoad::Counts CoordinatorLoad::Of(std::string_view request) const {
  const auto found = methods_.find(request);
  return found == methods_.end() ? Counts() : found->second;
}

CoordinatorLoad::Counts CoordinatorLoad::Total() const {
  Counts total;
  for (const auto& [name, counts] : methods_) total.Add(counts);
  return total;
}

CoordinatorLoad::Counts CoordinatorLoad::Peak() const {
  Counts peak;
  for (const auto& [second, counts] : seconds_) {
    peak.calls = std::max(peak.calls, counts.calls);
    peak.bytes_in = std::max(peak.bytes_in, counts.bytes_in);
    peak.bytes_out = std::max(peak.bytes_out, counts.bytes_out);
  }
  return peak;
}

std::string CoordinatorLoad::Table(absl::Duration took) const {
  const double seconds = absl::ToDoubleSeconds(took);
  std::string table = absl::StrFormat("%-28s %10s %10s %12s %12s\n", "call", "number", "a second",
                                      "in KiB/s", "out KiB/s");
  const auto add = [&](std::string_view name, const Counts& counts) {
    absl::StrAppendFormat(&table, "%-28s %10d %10.1f %12.1f %12.1f\n", name, counts.calls,
                          static_cast<double>(counts.calls) / seconds,
                          KiB(counts.bytes_in) / seconds, KiB(counts.bytes_out) / seconds);
  };
  for (const auto& [name, counts] : methods_) add(name, counts);
  add("all", Total());
  const Counts peak = Peak();
  absl::StrAppendFormat(&table, "%-28s %10d %10d %12.1f %12.1f\n", "the busiest second", peak.calls,
                        peak.calls, KiB(peak.bytes_in), KiB(peak.bytes_out));
  absl::StrAppendFormat(&table, "processor time of the calls: %s, %.2f %% of one core\n",
                        absl::FormatDuration(absl::Trunc(processor_time_, absl::Milliseconds(1))),
                        100 * absl::FDivDuration(processor_time_, took));
  return table;
}

}  // namespace parley
