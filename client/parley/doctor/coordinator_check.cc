#include "client/parley/doctor/coordinator_check.h"

#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/coordinator_address.h"

namespace parley {
namespace {

constexpr char kAddress[] = "coordinator address";
constexpr char kReachable[] = "coordinator reachable";
constexpr char kAnswer[] = "coordinator answer";
constexpr char kFilePrefix[] = "file:";
constexpr absl::Duration kConnect = absl::Seconds(5);

bool IsFile(const std::string& coordinator) { return absl::StartsWith(coordinator, kFilePrefix); }

Finding NoAddress(const absl::Status& status, const std::string& coordinator) {
  const std::string found(status.message());
  if (!IsFile(coordinator)) return Failure(kAddress, found, "--coordinator=HOST:PORT or file:PATH");
  if (absl::IsInvalidArgument(status)) {
    return Failure(kAddress, found,
                   "--coordinator=file:DIR/coordinator.address, DIR being the job's directory (the "
                   "--out of parley-coordinator or parley run)");
  }
  return Failure(
      kAddress, found,
      absl::StrCat("start parley-coordinator with --out=", FolderOfAddressFile(coordinator),
                   "; if it runs on another machine, this one does not see that folder: "
                   "mount the same file system here"));
}

Finding NotReached(const absl::Status& status, const std::string& address,
                   const std::string& coordinator) {
  const std::string found = absl::StrCat("no connection to ", address, ": ", status.message());
  if (!absl::IsDeadlineExceeded(status)) {
    return Failure(
        kReachable, found,
        IsFile(coordinator)
            ? absl::StrCat("nobody listens there: the address file ",
                           coordinator.substr(sizeof(kFilePrefix) - 1),
                           " is stale. Start parley-coordinator again with the same --job and "
                           "--out, and it writes its new address there")
            : std::string("start parley-coordinator there, with that --listen; if it runs, it "
                          "listens elsewhere: name its address file instead "
                          "(--coordinator=file:DIR/coordinator.address)"));
  }
  return Failure(kReachable, found,
                 absl::StrCat("something drops what goes there: let a firewall between the two "
                              "machines pass TCP to ",
                              address,
                              " (and among all machines of the job), or check the route "
                              "(ip route get)"));
}

// The first of its addresses that takes a connection.
absl::StatusOr<absl::Duration> Reach(const HostPort& place, HostNetwork& network) {
  const auto addresses = network.Resolve(place.host);
  if (!addresses.ok()) return absl::UnavailableError(addresses.status().message());
  absl::StatusOr<absl::Duration> took = absl::UnavailableError("it has no address");
  for (const std::string& address : *addresses) {
    took = network.Connect(address, place.port, kConnect);
    if (took.ok()) break;
  }
  return took;
}

Finding CheckAnswer(const CoordinatorQuestion& question, const std::string& address) {
  const auto status = question.ask(address);
  if (!status.ok()) {
    return Failure(kAnswer, std::string(status.status().message()),
                   absl::StrCat("something listens at ", address,
                                " and does not answer as a coordinator: look at its log; if it is "
                                "another program, the address is stale"));
  }
  const std::string found =
      absl::StrCat("job ", status->job(), ", ", absl::AsciiStrToLower(Phase_Name(status->phase())),
                   ", members: ", status->members_size(), " of ", status->expected_members());
  if (!question.job.empty() && status->job() != question.job) {
    return Failure(kAnswer, absl::StrCat(found, "; the job file is of job ", question.job),
                   "--coordinator of the same job as the job file: each job has a coordinator of "
                   "its own");
  }
  if (status->phase() == FAILED || status->phase() == FINISHED) {
    return Warning(kAnswer, found,
                   "this job is over: start another one, with an --out of its own, or the same "
                   "with --resume");
  }
  return Fine(kAnswer, found);
}

}  // namespace

Findings CheckCoordinator(const CoordinatorQuestion& question, FileSystem& files,
                          HostNetwork& network) {
  const auto address = ResolveCoordinator(files, question.coordinator);
  if (!address.ok()) return {NoAddress(address.status(), question.coordinator)};
  const auto place = ParseHostPort(*address);
  if (!place.ok()) return {NoAddress(place.status(), question.coordinator)};
  Findings findings = {Fine(kAddress, IsFile(question.coordinator)
                                          ? absl::StrCat(*address, ", in ", question.coordinator)
                                          : *address)};
  const auto took = Reach(*place, network);
  if (!took.ok()) {
    findings.push_back(NotReached(took.status(), *address, question.coordinator));
    return findings;
  }
  findings.push_back(Fine(
      kReachable, absl::StrFormat("a connection took %.2f ms", absl::ToDoubleMilliseconds(*took))));
  findings.push_back(CheckAnswer(question, *address));
  return findings;
}

std::string FolderOfAddressFile(const std::string& coordinator) {
  if (!IsFile(coordinator)) return "";
  const std::string path = coordinator.substr(sizeof(kFilePrefix) - 1);
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace parley
