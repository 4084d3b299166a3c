#include "worker/cuda/nccl_group.h"

#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/clock/steady_now.h"

namespace parley {
namespace {

// How long a group that is left in an orderly way may take for it.
constexpr absl::Duration kGoodbye = absl::Seconds(5);

ncclDataType_t TypeOf(BucketType type) {
  return type == BucketType::kFloat32 ? ncclFloat32 : ncclBfloat16;
}

size_t BytesOf(BucketType type) { return type == BucketType::kFloat32 ? 4 : 2; }

}  // namespace

NcclGroup::Clock NcclGroup::RealClock() {
  return {SteadyNow, [] { absl::SleepFor(absl::Microseconds(20)); }};
}

NcclGroup::NcclGroup(const NcclApi& api, cudaStream_t stream, const Options& options, Clock clock)
    : api_(api), stream_(stream), options_(options), clock_(std::move(clock)) {}

absl::StatusOr<std::unique_ptr<NcclGroup>> NcclGroup::Join(const NcclApi& api, cudaStream_t stream,
                                                           const Options& options,
                                                           absl::Time deadline, Clock clock) {
  ncclUniqueId id = {};
  if (options.id.size() != sizeof id.internal || options.rank >= options.ranks) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a group of GPUs: rank ", options.rank, " of ", options.ranks, " with an id of ",
        options.id.size(), " bytes, which must be ", sizeof id.internal));
  }
  std::memcpy(id.internal, options.id.data(), sizeof id.internal);
  auto group = absl::WrapUnique(new NcclGroup(api, stream, options, std::move(clock)));
  if (api.get_device(&group->gpu_) != cudaSuccess) {
    return absl::InternalError("a group of GPUs: this thread has chosen none");
  }

  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t communicator = nullptr;
  const ncclResult_t begun = api.init(&communicator, static_cast<int>(options.ranks), id,
                                      static_cast<int>(options.rank), &config);
  if (begun != ncclSuccess && begun != ncclInProgress) {
    if (communicator != nullptr) api.abort(communicator);
    return group->Result("joining", begun);
  }
  {
    absl::MutexLock lock(&group->mu_);
    group->communicator_ = communicator;
  }
  absl::Status status =
      group->Until("joining", deadline, [](ncclResult_t state) { return state == ncclSuccess; });
  if (!status.ok()) return status;
  return group;
}

NcclGroup::~NcclGroup() {
  {
    absl::MutexLock lock(&mu_);
    if (communicator_ == nullptr) return;  // it could not join, or was aborted
  }
  const absl::Status ended =
      Call("leaving", clock_.now() + kGoodbye,
           [this](ncclComm_t communicator) { return api_.finalize(communicator); });
  absl::MutexLock lock(&mu_);
  if (ended.ok() && communicator_ != nullptr) api_.destroy(communicator_);
}

std::string NcclGroup::Who() const {
  return absl::StrCat("rank ", options_.rank, " of ", options_.ranks, " in epoch ", options_.epoch,
                      " of its node group");
}

absl::Status NcclGroup::Result(const char* what, ncclResult_t result) const {
  const std::string text = absl::StrCat(Who(), ": ", what, ": NCCL says ", api_.error_text(result));
  return result == ncclRemoteError || result == ncclSystemError ? absl::UnavailableError(text)
                                                                : absl::InternalError(text);
}

absl::Status NcclGroup::Failed(const absl::Status& why) {
  if (failed_.ok()) failed_ = why;
  if (ncclComm_t communicator = std::exchange(communicator_, nullptr); communicator != nullptr) {
    // NCCL chooses the thread's GPU anew behind it, and on one that has chosen none that is the
    // first one, in which CUDA would make room for this process then.
    api_.set_device(gpu_);
    api_.abort(communicator);
  }
  return failed_;
}

void NcclGroup::Abort() {
  absl::MutexLock lock(&mu_);
  Failed(absl::CancelledError(absl::StrCat(Who(), ": aborted"))).IgnoreError();
}

absl::Status NcclGroup::Until(const char* what, absl::Time deadline,
                              const std::function<absl::StatusOr<bool>(ncclResult_t)>& done) {
  const absl::Time began = clock_.now();
  while (true) {
    ncclResult_t state = ncclSuccess;
    {
      absl::MutexLock lock(&mu_);
      if (!failed_.ok()) return failed_;
      if (options_.cancelled && options_.cancelled()) {
        return Failed(absl::CancelledError(absl::StrCat(Who(), ": ", what, ": given up")));
      }
      const ncclResult_t asked = api_.async_error(communicator_, &state);
      if (asked != ncclSuccess) return Failed(Result(what, asked));
      if (state != ncclSuccess && state != ncclInProgress) return Failed(Result(what, state));
    }
    const absl::StatusOr<bool> is_done = done(state);
    if (is_done.ok() && *is_done) {
      // What an abort has ended is not done.
      absl::MutexLock lock(&mu_);
      return failed_;
    }
    const absl::Time now = clock_.now();
    if (!is_done.ok() || now > deadline) {
      absl::MutexLock lock(&mu_);
      if (!is_done.ok()) return Failed(is_done.status());
      return Failed(absl::DeadlineExceededError(
          absl::StrCat(Who(), ": ", what, ": the other GPUs have not answered within ",
                       absl::FormatDuration(now - began))));
    }
    clock_.pause();
  }
}

absl::Status NcclGroup::Call(const char* what, absl::Time deadline,
                             const std::function<ncclResult_t(ncclComm_t)>& call) {
  {
    absl::MutexLock lock(&mu_);
    if (!failed_.ok()) return failed_;
    const ncclResult_t result = call(communicator_);
    if (result != ncclSuccess && result != ncclInProgress) return Failed(Result(what, result));
  }
  return Until(what, deadline, [](ncclResult_t state) { return state == ncclSuccess; });
}

absl::Status NcclGroup::CallForEach(
    const char* what, absl::Span<const Part> parts, absl::Time deadline,
    const std::function<ncclResult_t(const Part&, ncclComm_t)>& call) {
  return Call(what, deadline, [&](ncclComm_t communicator) {
    ncclResult_t result = api_.group_start();
    if (result != ncclSuccess) return result;
    for (const Part& part : parts) {
      result = call(part, communicator);
      if (result != ncclSuccess && result != ncclInProgress) break;
    }
    const ncclResult_t ended = api_.group_end();
    return result != ncclSuccess && result != ncclInProgress ? result : ended;
  });
}

absl::Status NcclGroup::Reduce(std::byte* values, absl::Span<const Part> parts, BucketType type,
                               absl::Time deadline) {
  const size_t each = BytesOf(type);
  return CallForEach("reducing", parts, deadline, [&](const Part& part, ncclComm_t communicator) {
    return api_.reduce(values + part.send * each, values + part.receive * each, part.count,
                       TypeOf(type), ncclSum, static_cast<int>(part.rank), communicator, stream_);
  });
}

absl::Status NcclGroup::Broadcast(std::byte* values, absl::Span<const Part> parts, BucketType type,
                                  absl::Time deadline) {
  const size_t each = BytesOf(type);
  return CallForEach("broadcast", parts, deadline, [&](const Part& part, ncclComm_t communicator) {
    return api_.broadcast(values + part.send * each, values + part.receive * each, part.count,
                          TypeOf(type), static_cast<int>(part.rank), communicator, stream_);
  });
}

absl::Status NcclGroup::ReduceScatter(const std::byte* send, std::byte* receive, uint64_t count,
                                      BucketType type, absl::Time deadline) {
  return Call("reduce-scatter", deadline, [&](ncclComm_t communicator) {
    return api_.reduce_scatter(send, receive, count, TypeOf(type), ncclSum, communicator, stream_);
  });
}

absl::Status NcclGroup::AllGather(const std::byte* send, std::byte* receive, uint64_t count,
                                  BucketType type, absl::Time deadline) {
  return Call("all-gather", deadline, [&](ncclComm_t communicator) {
    return api_.all_gather(send, receive, count, TypeOf(type), communicator, stream_);
  });
}

absl::Status NcclGroup::Await(const std::function<absl::StatusOr<bool>()>& done,
                              absl::Time deadline) {
  return Until("waiting", deadline, [&](ncclResult_t state) -> absl::StatusOr<bool> {
    return state == ncclSuccess ? done() : false;
  });
}

}  // namespace parley
