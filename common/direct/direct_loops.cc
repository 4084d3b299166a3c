#include "common/direct/direct_loops.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"

namespace parley {
namespace {

// They encrypt what a link of 100 Gbit/s takes.
constexpr size_t kMostEncrypting = 8;

}  // namespace

size_t LoopsFor(const SharedCredentials& credentials, size_t plain, size_t cores) {
  const bool encrypted = credentials != nullptr && credentials->tls();
  return std::clamp<size_t>(cores, 1, encrypted ? kMostEncrypting : plain);
}

DirectLoop* DirectLoops::Next() {
  absl::MutexLock lock(&mu_);
  if (ended_) return nullptr;
  if (loops_.size() < most_) {
    absl::StatusOr<std::unique_ptr<DirectLoop>> loop = DirectLoop::Start();
    if (loop.ok()) return loops_.emplace_back(*std::move(loop)).get();
  }
  if (loops_.empty()) return nullptr;
  return loops_[next_++ % loops_.size()].get();
}

void DirectLoops::End() {
  std::vector<std::unique_ptr<DirectLoop>> loops;  // what ends with them may ask for another one
  {
    absl::MutexLock lock(&mu_);
    ended_ = true;
    loops.swap(loops_);
  }
}

}  // namespace parley
