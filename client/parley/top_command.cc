// parley top: a running job, as a page of the terminal that is drawn anew each second.
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "client/coordinator_address.h"
#include "client/grpc_connector.h"
#include "client/parley/command.h"
#include "client/parley/member_metrics.h"
#include "client/parley/progress.h"
#include "client/parley/scrape.h"
#include "client/parley/screen.h"
#include "client/parley/signal_inbox.h"
#include "client/parley/status_query.h"
#include "client/parley/top_text.h"
#include "common/clock/steady_now.h"
#include "common/file_system.h"

namespace parley {
namespace {

constexpr absl::Duration kAnswer = absl::Seconds(5);  // the first one of the coordinator
constexpr absl::Duration kScrape = absl::Seconds(2);
constexpr absl::Duration kRefresh = absl::Seconds(1);
constexpr absl::Duration kAskStatus = absl::Milliseconds(500);  // a job's end is soon forgotten
constexpr absl::Duration kGone = absl::Seconds(5);              // without an answer
constexpr absl::Duration kKeys = absl::Milliseconds(50);        // how soon a key is seen
constexpr int kColumns = 120;                                   // where there is no terminal

struct Options {
  CoordinatorArgument job;
  bool once = false;
};

// What is known of the job so far, from answers as they come. Used by one thread.
class KnownJob {
 public:
  void See(GetStatusReply status, absl::Time now) {
    left_.See(status, now);
    frame_.status = std::move(status);
    seen_at_ = now;
    std::set<uint64_t> members;
    for (const MemberStatus& member : frame_.status.members()) members.insert(member.member().id());
    window_.Keep(members);
  }

  void See(const Scrapes& scrapes, absl::Time now) {
    frame_.not_scraped.clear();
    for (const MemberStatus& status : frame_.status.members()) {
      const Member& member = status.member();
      const auto scrape = scrapes.find(member.metrics_address());
      if (scrape == scrapes.end()) continue;
      if (scrape->second.ok()) {
        window_.See(member.id(), now, MemberMetrics::Of(ParseMetrics(*scrape->second)));
      } else {
        frame_.not_scraped[member.id()] = std::string(scrape->second.status().message());
      }
    }
  }

  std::vector<std::string> MetricsAddresses() const {
    std::vector<std::string> addresses;
    for (const MemberStatus& status : frame_.status.members()) {
      if (status.left() || status.member().metrics_address().empty()) continue;
      addresses.push_back(status.member().metrics_address());
    }
    return addresses;
  }

  const TopFrame& Frame(absl::Time now) {
    frame_.status_age = now - seen_at_;
    frame_.left = left_.Get();
    frame_.looks.clear();
    for (const MemberStatus& status : frame_.status.members()) {
      const uint64_t id = status.member().id();
      if (auto look = window_.Look(id)) frame_.looks[id] = *std::move(look);
    }
    return frame_;
  }

  absl::Duration StatusAge(absl::Time now) const { return now - seen_at_; }

  bool ended() const {
    return frame_.status.phase() == FINISHED || frame_.status.phase() == FAILED;
  }

 private:
  TopFrame frame_;
  absl::Time seen_at_;
  TimeLeft left_;
  MetricsWindow window_;
};

bool IsToEnd(SignalInbox& signals, Screen& screen) {
  if (signals.Wait(kKeys) != 0) return true;
  const char key = screen.TakeKey();
  return key == 'q' || key == 'Q';
}

// Until the user has seen enough, or `gone` or the job's status says that it has ended; its last
// page then.
std::optional<std::string> Watch(KnownJob& job, SignalInbox& signals, StatusPoller& status,
                                 const std::function<bool()>& gone) {
  Screen screen(stdout);
  ScrapePoller metrics(kScrape);
  absl::Time asked_at = absl::InfinitePast();
  absl::Time drawn_at = absl::InfinitePast();
  while (!job.ended()) {
    const absl::Time now = SteadyNow();
    if (now - asked_at >= kAskStatus) {
      status.Ask(now);
      asked_at = now;
    }
    if (auto reply = status.Take()) job.See(*std::move(reply), now);
    if (const auto scrapes = metrics.Take()) job.See(*scrapes, now);
    if (now - drawn_at >= kRefresh) {
      if (job.StatusAge(now) >= kGone && gone()) break;
      metrics.Ask(job.MetricsAddresses());
      const TopPage page = {.columns = screen.columns(), .rows = screen.rows(), .colour = true};
      if (!screen.Draw(TopText(job.Frame(now), page))) return std::nullopt;
      drawn_at = now;
    }
    if (IsToEnd(signals, screen)) return std::nullopt;
  }
  return TopText(job.Frame(SteadyNow()), {.columns = screen.columns(), .colour = true});
}

int Run(const Options& options) {
  SignalInbox signals;  // before any other thread
  const auto files = PosixFileSystem();
  const FoundCredentials found = FindCredentials(options.job);
  if (found.exit) return *found.exit;
  const auto connector = MakeGrpcConnector(/*direct=*/false, found.credentials);
  auto first = QueryStatus(*connector, *files, options.job.coordinator, kAnswer);
  if (!first.ok()) {
    return Exit(absl::IsInvalidArgument(first.status()) ? kWrongUsage : kFailed,
                std::string(first.status().message()));
  }
  KnownJob job;
  job.See(*std::move(first), SteadyNow());
  std::optional<std::string> page;
  if (options.once || isatty(STDOUT_FILENO) == 0) {
    job.See(ScrapeAll(job.MetricsAddresses(), kScrape), SteadyNow());
    page = TopText(job.Frame(SteadyNow()), {.columns = kColumns});
  } else {
    StatusPoller status(*connector, *files, options.job.coordinator);
    page = Watch(job, signals, status, [&] {
      // The coordinator takes its address file away when the job is over.
      return absl::StartsWith(options.job.coordinator, "file:") &&
             absl::IsUnavailable(ResolveCoordinator(*files, options.job.coordinator).status());
    });
  }
  return Print(page.value_or(""));
}

}  // namespace

Command AddTop(CLI::App& subcommand) {
  const auto options = std::make_shared<Options>();
  AddCoordinatorArgument(subcommand, options->job);
  subcommand.add_flag("--once", options->once,
                      "Print one page and end, as where the output is no terminal");
  return [options] { return Run(*options); };
}

}  // namespace parley
