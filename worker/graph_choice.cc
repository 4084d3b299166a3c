#include "worker/graph_choice.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace parley {

GraphChoice::GraphChoice(const JobConfig& job, bool on_device, bool adds_up_on_devices, Log* log)
    : log_(log), wanted_(job.cuda_graphs()) {
  if (!on_device) {
    never_ = "it computes on the CPU";
  } else if (adds_up_on_devices) {
    never_ = "gradients are added up among the GPUs of its node group while backward goes on";
  } else if (job.precision() == FLOAT16_AUTOCAST) {
    never_ = "the scale of float16's loss changes";
  }
}

bool GraphChoice::Choose(uint64_t step, size_t microbatches, size_t samples) {
  if (!wanted_) return false;
  if (!never_.empty()) return No(step, never_);
  if (microbatches != 1) return No(step, "the gradients of several microbatches are added up");
  if (steps_ < kFirstSteps) {
    ++steps_;
    samples_ = std::max(samples_, samples);
    return false;
  }
  if (samples == samples_) return true;
  return No(step, absl::StrCat("a step has ", samples, " samples, and the graph is of ", samples_));
}

void GraphChoice::Computed(uint64_t step) {
  if (std::exchange(computed_, true) || log_ == nullptr) return;
  log_->Info("computes steps as a CUDA graph", {{"from_step", absl::StrCat(step)}});
}

void GraphChoice::CannotRecord(const std::string& why) {
  never_ = absl::StrCat(computed_ ? "the graph is of no use any more: " : "it cannot be recorded: ",
                        why);
}

bool GraphChoice::No(uint64_t step, const std::string& why) {
  if (said_.insert(why).second && log_ != nullptr) {
    log_->Warning("computes without a CUDA graph", {{"step", absl::StrCat(step)}, {"why", why}});
  }
  return false;
}

}  // namespace parley
