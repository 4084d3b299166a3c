#include "common/daemon/daemon_credentials.h"

#include <filesystem>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/rpc/server.h"
#include "common/security/credential_file.h"
#include "common/security/protection.h"

namespace parley {

absl::StatusOr<SharedCredentials> DaemonCredentials(Tls::Mode mode, const DaemonFlags& flags) {
  absl::string_view called = flags.coordinator;
  const bool by_file = absl::ConsumePrefix(&called, "file:");
  // What is no address would count as one beyond this machine.
  if (!by_file && !flags.coordinator.empty() && HostOf(flags.coordinator).empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--coordinator: '", flags.coordinator,
                     "' is no address of a coordinator: HOST:PORT or file:PATH is expected"));
  }
  if (HostOf(flags.listen).empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--listen: '", flags.listen, "' is no HOST:PORT to listen on (port 0 takes a free one)"));
  }
  const Protection protection = ProtectionFor(
      mode, {flags.listen, flags.advertise, by_file ? "" : std::string(flags.coordinator)});
  const std::string path = !flags.credentials.empty() ? flags.credentials
                           : by_file                  ? CredentialsBeside(std::string(called))
                                                      : "";
  if (path.empty()) {
    if (protection == Protection::kOpen) return SharedCredentials();
    return absl::InvalidArgumentError(
        absl::StrCat("--coordinator=", flags.coordinator,
                     ": this job's processes know each other by the file 'credentials' in its "
                     "directory; name it "
                     "with --credentials=JOBDIR/",
                     kCredentialFile, ", or say --coordinator=file:JOBDIR/coordinator.address"));
  }
  absl::StatusOr<SharedCredentials> there = ReadCredentials(path);
  if (absl::IsNotFound(there.status())) {
    if (protection == Protection::kOpen) return SharedCredentials();
    std::error_code error;  // the next call tells of it
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
    there = ReadOrMakeCredentials(path, protection == Protection::kTls);
  }
  if (!there.ok()) return there.status();
  const bool other_kind =
      (mode == Tls::ON && !(*there)->tls()) || (mode == Tls::OFF && (*there)->tls());
  if (other_kind) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is of a job that was tls: ", mode == Tls::ON ? "OFF" : "ON or AUTO",
                     "; remove it when nothing of that job runs any more"));
  }
  return there;
}

}  // namespace parley
