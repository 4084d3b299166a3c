#include "common/rpc/status.h"

#include <cstddef>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace parley {
namespace {

// gRPC's limit on all metadata of a reply is 8 KiB, and percent-encoding can triple a text.
constexpr size_t kMessageLimit = 2000;

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const std::string message(status.message().substr(0, kMessageLimit));
  return {static_cast<grpc::StatusCode>(status.code()), message};
}

absl::Status FromGrpc(const grpc::Status& status, const std::string& peer) {
  if (status.ok()) return absl::OkStatus();
  std::string message = status.error_message();
  if (!absl::StrContains(message, peer)) message = absl::StrCat(peer, ": ", message);
  return {static_cast<absl::StatusCode>(status.error_code()), message};
}

}  // namespace parley
