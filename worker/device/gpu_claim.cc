#include "worker/device/gpu_claim.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"

namespace parley {

std::unique_ptr<GpuClaim> GpuClaim::Take(const std::string& id) {
  auto listener = LocalListener::Listen(absl::StrCat("parley-gpu ", id));
  if (!listener.ok()) return nullptr;
  return absl::WrapUnique(new GpuClaim(*std::move(listener)));
}

}  // namespace parley
