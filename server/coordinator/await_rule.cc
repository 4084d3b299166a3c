#include "server/coordinator/await_rule.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/coordinator/succession.h"

namespace parley {

absl::StatusOr<JobLog> AwaitRule(FileSystem& files, const JobDirectory& directory,
                                 const std::string& job, absl::Duration liveness,
                                 const SuccessionSeams& seams) {
  Succession succession(job, liveness, seams.now());
  std::optional<JobLog> log;
  while (true) {
    const Succession::Next next = succession.Decide(seams.now());
    switch (next.kind) {
      case Succession::Kind::kLook: {
        auto address = directory.ReadAddress();
        if (!address.ok()) return address.status();
        auto opened = JobLog::Open(files, directory.log_directory(), job);
        if (!opened.ok()) return opened.status();
        log = *std::move(opened);
        Succession::Sighting sighting;
        sighting.address = *std::move(address);
        // An unfinished record counts as well: its maker may live.
        sighting.number = log->next_number() - 1;
        if (log->last()) {
          sighting.generation = log->last()->generation();
          sighting.writer = log->last()->address();
          sighting.over = log->last()->state().over() && log->last()->number() == sighting.number;
        }
        succession.Looked(sighting, seams.now());
        break;
      }
      case Succession::Kind::kAsk:
        succession.Answered(seams.ask(next.address), seams.now());
        break;
      case Succession::Kind::kWait:
        if (!seams.wait(next.until)) {
          return absl::CancelledError(absl::StrCat("stopped while it waited to take over job '",
                                                   job, "' from another coordinator"));
        }
        break;
      case Succession::Kind::kTake:
        return *std::move(log);
      case Succession::Kind::kRefused:
        return next.status;
    }
  }
}

}  // namespace parley
