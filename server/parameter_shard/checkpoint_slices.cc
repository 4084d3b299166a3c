#include "server/parameter_shard/checkpoint_slices.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/names.h"
#include "common/tensor.h"

namespace parley {

CheckpointSlices::CheckpointSlices(const CheckpointReader& reader, const Routing& routing,
                                   const std::function<void(uint64_t)>& on_check,
                                   const std::function<bool()>& stop)
    : reader_(reader), routing_(routing), on_check_(on_check), stop_told_(stop) {
  for (std::thread& reading : readers_) reading = std::thread([this] { ReadSlices(); });
}

CheckpointSlices::~CheckpointSlices() {
  {
    absl::MutexLock lock(&mu_);
    stop_ = true;
  }
  for (std::thread& reading : readers_) reading.join();
}

absl::Status CheckpointSlices::GoesOn() const {
  return stop_told_ && stop_told_() ? absl::CancelledError("told to read no more")
                                    : absl::OkStatus();
}

absl::StatusOr<const CheckpointSlices::Read*> CheckpointSlices::Next() {
  const Place* place = nullptr;
  bool last = false;
  {
    absl::MutexLock lock(&mu_);
    if (taken_ > 0) places_[(taken_ - 1) % kAhead].whole = false;
    done_ = taken_;
    mu_.Await(absl::Condition(this, &CheckpointSlices::HasNext));
    place = &places_[taken_++ % kAhead];
    last = taken_ == routing_.own_slices().size();
  }
  if (!place->status.ok()) return place->status;
  // Those that are read ahead need not be started.
  if (absl::Status status = GoesOn(); !status.ok()) return status;
  if (last) {
    const auto on_bytes = [this](uint64_t bytes) {
      if (on_check_) on_check_(bytes);
      return GoesOn().ok();
    };
    if (absl::Status status = reader_.VerifyRead(on_bytes); !status.ok()) return status;
  }
  return &place->read;
}

void CheckpointSlices::ReadSlices() {
  const auto& slices = routing_.own_slices();
  for (;;) {
    size_t i = 0;
    size_t announce = 0;
    size_t announce_end = 0;
    {
      absl::MutexLock lock(&mu_);
      mu_.Await(absl::Condition(this, &CheckpointSlices::MayRead));
      if (stop_ || begun_ == slices.size()) return;
      i = begun_++;
      announce = announced_;
      announced_ = announce_end = std::min(begun_ + kAnnounced, slices.size());
    }
    for (; announce < announce_end; ++announce) Announce(slices[announce]);
    Place& place = places_[i % kAhead];
    place.status = ReadSlice(slices[i], place);
    absl::MutexLock lock(&mu_);
    place.whole = true;
  }
}

void CheckpointSlices::Announce(uint32_t id) const {
  const TensorSpec& tensor = routing_.tensor(id);
  const Slice& slice = routing_.slice(id);
  reader_.WillRead(tensor.name(), slice.begin(), slice.end());
  if (tensor.buffer()) return;
  for (const std::string& state : reader_.StatesOf(tensor.name())) {
    reader_.WillRead(StateName(tensor.name(), state), slice.begin(), slice.end());
  }
}

absl::Status CheckpointSlices::ReadSlice(uint32_t id, Place& place) const {
  const TensorSpec& tensor = routing_.tensor(id);
  const Slice& slice = routing_.slice(id);
  const std::vector<std::string> states =
      tensor.buffer() ? std::vector<std::string>() : reader_.StatesOf(tensor.name());
  place.bytes.resize(1 + states.size());
  absl::Status status = ReadPiece(tensor.name(), tensor, slice, place.bytes[0]);
  if (!status.ok()) return status;
  place.read.slice = id;
  SliceStart& start = place.read.start;
  start = SliceStart();
  start.values = place.bytes[0];
  for (size_t i = 0; i < states.size(); ++i) {
    std::string& bytes = place.bytes[1 + i];
    status = ReadPiece(StateName(tensor.name(), states[i]), tensor, slice, bytes);
    if (!status.ok()) return status;
    start.state.push_back({states[i], bytes});
  }
  const auto& steps = reader_.manifest().optimizer_steps();
  auto count = steps.find(OptimizerStepsKey(tensor.name(), slice.begin()));
  if (count == steps.end()) count = steps.find(tensor.name());
  if (count != steps.end()) start.optimizer_steps = count->second;
  return absl::OkStatus();
}

absl::Status CheckpointSlices::ReadPiece(const std::string& name, const TensorSpec& tensor,
                                         const Slice& slice, std::string& bytes) const {
  if (absl::Status status = GoesOn(); !status.ok()) return status;
  const TensorSpec* const there = reader_.Find(name);
  if (there == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("the checkpoint ", reader_.folder(), " has no tensor ", name));
  }
  if (there->dtype() != tensor.dtype() || ElementCount(*there) != ElementCount(tensor)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " has ", ElementCount(tensor), " elements of type ",
                     std::string(DataTypeName(tensor.dtype())), " in this job, but ",
                     ElementCount(*there), " of type ", std::string(DataTypeName(there->dtype())),
                     " in the checkpoint ", reader_.folder()));
  }
  bytes.resize((slice.end() - slice.begin()) * ElementBytes(tensor.dtype()));
  return reader_.Read(name, slice.begin(), slice.end(),
                      absl::MakeSpan(reinterpret_cast<std::byte*>(bytes.data()), bytes.size()));
}

}  // namespace parley
