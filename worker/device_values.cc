#include "worker/device_values.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <set>
#include <utility>

#include "absl/memory/memory.h"
#include "client/torch/torch_status.h"
#include "common/clock/steady_now.h"
#include "common/tensor.h"
#include "worker/owned_parts.h"

namespace parley {
namespace {

bool IsSame(absl::Span<const std::byte> one, absl::Span<const std::byte> other) {
  return one.data() == other.data() && one.size() == other.size();
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceValues>> DeviceValues::Make(
    ComputeDevice& device, absl::Span<const TensorSpec> tensors, const Options& options) {
  auto values = absl::WrapUnique(new DeviceValues(device, options));
  std::vector<uint64_t> tiny;
  std::vector<uint64_t> small;
  for (const TensorSpec& spec : tensors) {
    const uint64_t count = spec.buffer() ? 0 : ElementCount(spec);
    values->names_.push_back(spec.name());
    const bool is_small = count < options.direct;
    const bool is_tiny = is_small && count <= options.tiny;
    tiny.push_back(is_tiny ? count : 0);
    small.push_back(is_small && !is_tiny ? count : 0);
  }
  values->plan_ =
      Both(PlanBuckets(tiny, options.bucket_elements), PlanBuckets(small, options.bucket_elements));
  values->brought_.assign(values->plan_.buckets.size(), true);
  values->shown_.resize(tensors.size());
  values->failed_pins_.resize(tensors.size());
  auto path = ParameterPath::Make(
      device,
      {std::max(options.staged_elements, options.bucket_elements) * sizeof(float), kMostShared, 4});
  if (!path.ok()) return path.status();
  values->path_ = *std::move(path);
  auto event = device.MakeEvent();
  if (!event.ok()) return event.status();
  values->computed_ = *std::move(event);
  return values;
}

DeviceValues::~DeviceValues() {
  // A device that does not answer within a minute is lost, and nobody reads its copies.
  if (session_ != nullptr) AwaitDevice(SteadyNow() + absl::Minutes(1)).IgnoreError();
}

void DeviceValues::Attach(Session& session, std::vector<at::Tensor> tensors) {
  session_ = &session;
  tensors_ = std::move(tensors);
}

absl::Time DeviceValues::Deadline() const { return SteadyNow() + options_.patience; }

absl::Status DeviceValues::AwaitDevice(absl::Time deadline) {
  absl::Status status = device_.Record(*computed_, StreamId::kCompute);
  return status.ok() ? device_.Await(*computed_, deadline) : status;
}

absl::Status DeviceValues::Begin() {
  watch_.reset();
  brought_.assign(plan_.buckets.size(), false);
  return path_->Begin();
}

absl::Status DeviceValues::BringAll() {
  shared_ = false;
  absl::Status status = Begin();
  for (size_t i = 0; i < tensors_.size() && status.ok(); ++i) status = BringFor(i);
  return status;
}

absl::Status DeviceValues::BringAsUsed() {
  if (absl::Status status = Begin(); !status.ok()) return status;
  shared_ = share_next_;
  return CatchTorch("watching the parameters", [&] {
    watch_.emplace(tensors_, [this](size_t tensor) { error_.Update(BringFor(tensor)); });
  });
}

absl::Status DeviceValues::BringRemaining() {
  if (!watch_.has_value()) return absl::OkStatus();  // they are there
  watch_.reset();
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (absl::Status status = BringFor(i); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status DeviceValues::EndForward() {
  // Else another microbatch may use what this one has not.
  if (watch_.has_value() && watch_->unused() == 0) watch_.reset();
  return error_;
}

std::vector<Piece> DeviceValues::PiecesOf(absl::Span<const BucketPlan::Part> parts) const {
  std::vector<Piece> pieces;
  for (const BucketPlan::Part& part : parts) {
    pieces.push_back(
        {tensors_[part.tensor].mutable_data_ptr<float>() + part.begin, part.offset, part.count});
  }
  return pieces;
}

absl::Status DeviceValues::BringStaged(absl::Span<const BucketPlan::Part> parts) {
  const auto fill = [&](absl::Span<std::byte> values) {
    for (const BucketPlan::Part& part : parts) {
      std::memcpy(values.data() + part.offset * sizeof(float),
                  session_->parameter(part.tensor).data() + part.begin * sizeof(float),
                  part.count * sizeof(float));
    }
    return absl::OkStatus();
  };
  return path_->Bring(PiecesOf(parts), BucketType::kFloat32,
                      BucketPlan::Size(parts) * sizeof(float), Deadline(), fill);
}

absl::Status DeviceValues::BringBucket(size_t bucket) {
  if (brought_[bucket]) return absl::OkStatus();
  brought_[bucket] = true;
  for (const BucketPlan::Part& part : plan_.buckets[bucket]) {
    // Where it does not come, Complete says what has become of the step.
    session_->AwaitParameter(part.tensor).IgnoreError();
  }
  return BringStaged(plan_.buckets[bucket]);
}

bool DeviceValues::MayPin(size_t tensor) const {
  constexpr uint32_t kTries = 10;
  return failed_pins_[tensor] < kTries;
}

std::vector<Session::ShownPart> DeviceValues::FindSources(size_t tensor, size_t begin, size_t end,
                                                          bool& pins) {
  std::vector<Session::ShownPart> parts = session_->ShownParts(tensor, begin, end);
  size_t until = begin;
  for (const Session::ShownPart& part : parts) {
    if (part.begin != until) break;
    until += part.bytes.size();
  }
  if (until < end) parts.clear();
  std::map<size_t, Session::ShownPart>& shown = shown_[tensor];
  const auto from = shown.lower_bound(begin);
  const auto to = shown.lower_bound(end);
  const auto is_same = [](const auto& one, const Session::ShownPart& other) {
    return one.first == other.begin && IsSame(one.second.bytes, other.bytes) &&
           one.second.owner == other.owner;
  };
  if (std::equal(from, to, parts.begin(), parts.end(), is_same)) return parts;
  // Where some is shown no more, the rest is as good as new: memory is let go of once.
  shown.erase(from, parts.empty() ? shown.end() : to);
  if (parts.empty()) LetGo({});
  if (parts.empty() || !pins) return {};
  pins = Pin(names_[tensor], parts);
  if (!pins) return {};
  for (const Session::ShownPart& part : parts) shown[part.begin] = part;
  return parts;
}

bool DeviceValues::Pin(const std::string& name, absl::Span<const Session::ShownPart> parts) {
  size_t missing = 0;
  std::set<const std::byte*> changed;  // what lies where something else lay: of a former shard
  for (const Session::ShownPart& part : parts) {
    const auto found = pinned_.find(part.bytes.data());
    if (found == pinned_.end()) {
      ++missing;
    } else if (!IsSame(found->second.bytes, part.bytes) || found->second.owner != part.owner) {
      changed.insert(part.bytes.data());
    }
  }
  if (missing == 0 && changed.empty()) return true;
  size_t shown = parts.size();
  for (auto& of_tensor : shown_) {
    std::erase_if(of_tensor,
                  [&](const auto& one) { return changed.count(one.second.bytes.data()) != 0; });
    shown += of_tensor.size();
  }
  if (!changed.empty() || pinned_.size() + missing > kMostMemories * shown) {
    LetGo(changed.empty() ? parts : absl::Span<const Session::ShownPart>());
  }
  for (const Session::ShownPart& part : parts) {
    if (pinned_.count(part.bytes.data()) != 0) continue;
    auto pin = device_.Pin(name, part.bytes, /*read_only=*/true);
    if (!pin.ok()) return false;
    pinned_.emplace(part.bytes.data(), Pinned{part.bytes, part.owner, *std::move(pin)});
  }
  return true;
}

void DeviceValues::LetGo(absl::Span<const Session::ShownPart> but) {
  std::set<const std::byte*> stay;
  for (const Session::ShownPart& part : but) stay.insert(part.bytes.data());
  for (const auto& of_tensor : shown_) {
    for (const auto& [begin, part] : of_tensor) stay.insert(part.bytes.data());
  }
  const auto stays = [&](const auto& pinned) { return stay.count(pinned.first) != 0; };
  if (std::all_of(pinned_.begin(), pinned_.end(), stays)) return;
  // Copies from there. (An error of the device shows with what it is given next.)
  if (sharing_.has_value()) sharing_->await(0).IgnoreError();
  AwaitDevice(Deadline()).IgnoreError();
  for (auto it = pinned_.begin(); it != pinned_.end();) {
    it = stays(*it) ? std::next(it) : pinned_.erase(it);
  }
}

absl::Status DeviceValues::BringLarge(size_t tensor) {
  auto* const to = static_cast<std::byte*>(tensors_[tensor].mutable_data_ptr());
  const size_t all = tensors_[tensor].nbytes();
  bool pins = MayPin(tensor);
  for (size_t begin = 0; begin < all;) {
    size_t end = std::min(all, begin + options_.staged_elements * sizeof(float));
    session_->AwaitParameterUntil(tensor, end).IgnoreError();  // as in BringBucket
    const std::vector<Session::ShownPart> shown = FindSources(tensor, begin, end, pins);
    if (!shown.empty()) {
      std::vector<ComputeDevice::HostPart> copies;
      for (const Session::ShownPart& part : shown) {
        copies.push_back({to + part.begin, part.bytes});
        end = part.begin + part.bytes.size();
      }
      if (absl::Status status = path_->BringDirect(copies); !status.ok()) return status;
    } else {
      absl::Status status =
          BringStaged({{tensor, begin / sizeof(float), (end - begin) / sizeof(float), 0}});
      if (!status.ok()) return status;
    }
    begin = end;
  }
  if (!pins) ++failed_pins_[tensor];
  return absl::OkStatus();
}

absl::Status DeviceValues::BringFor(size_t tensor) {
  if (!tensors_[tensor].defined() || tensors_[tensor].numel() == 0) return absl::OkStatus();
  const std::vector<size_t>& buckets = plan_.buckets_of[tensor];
  if (IsShared(tensor)) {
    absl::Status status = BringUnitsUntil(units_until_[tensor]);
    // Some of its buckets may be in no unit.
    if (!status.ok() || buckets.empty()) return status;
  } else if (buckets.empty()) {
    return BringLarge(tensor);
  }
  for (const size_t bucket : buckets) {
    if (absl::Status status = BringBucket(bucket); !status.ok()) return status;
  }
  return absl::OkStatus();
}

DeviceValues::Unit DeviceValues::UnitOf(absl::Span<const BucketPlan::Part> parts) const {
  Unit unit;
  uint64_t covered = 0;
  for (const OwnedPart& part : PartsByOwner(parts, sharing_->ranges)) {
    covered += part.count;
    DeviceGroup::Part* const last = unit.parts.empty() ? nullptr : &unit.parts.back();
    if (last != nullptr && last->rank == part.rank && last->send + last->count == part.at) {
      last->count += part.count;
    } else {
      unit.parts.push_back({part.at, part.at, part.count, part.rank});
    }
  }
  // Where nobody owns some of it each gets all of it from the host.
  uint64_t all = 0;
  for (const BucketPlan::Part& part : parts) all += part.count;
  if (covered != all) unit.parts.clear();
  for (const DeviceGroup::Part& part : unit.parts) {
    if (part.rank != sharing_->rank) continue;
    unit.own.push_back({part.send * sizeof(float), part.count * sizeof(float)});
  }
  return unit;
}

void DeviceValues::Form(std::optional<Sharing> sharing) {
  StopSharing();
  sharing_ = std::move(sharing);
  units_.clear();
  units_until_.assign(tensors_.size(), 0);
  if (!sharing_.has_value()) return;
  std::vector<size_t> until(plan_.buckets.size(), 0);
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!tensors_[i].defined() || tensors_[i].numel() == 0) continue;
    if (plan_.buckets_of[i].empty()) {
      Unit unit = UnitOf({{i, 0, static_cast<uint64_t>(tensors_[i].numel()), 0}});
      if (unit.parts.empty()) continue;
      unit.large = i;
      units_.push_back(std::move(unit));
      units_until_[i] = units_.size();
      continue;
    }
    for (const size_t bucket : plan_.buckets_of[i]) {
      if (until[bucket] == 0) {
        Unit unit = UnitOf(plan_.buckets[bucket]);
        if (unit.parts.empty()) continue;
        unit.bucket = bucket;
        units_.push_back(std::move(unit));
        until[bucket] = units_.size();
      }
      units_until_[i] = std::max(units_until_[i], until[bucket]);
    }
  }
}

void DeviceValues::ShareNext() {
  share_next_ = !units_.empty();
  next_unit_ = 0;
}

void DeviceValues::StopSharing() {
  share_next_ = false;
  shared_ = false;
}

bool DeviceValues::IsShared(size_t tensor) {
  if (!shared_ || units_until_[tensor] == 0) return false;
  // What was shared before is of the same version.
  if (next_unit_ < units_until_[tensor] && !sharing_->stands()) StopSharing();
  return shared_;
}

absl::Status DeviceValues::BringRest() {
  if (!share_next_) return absl::OkStatus();
  share_next_ = false;
  if (!sharing_->stands()) return absl::OkStatus();
  if (!shared_) {
    // All have come from the host, and forward may still use them.
    if (absl::Status status = Begin(); !status.ok()) return status;
  }
  return BringUnitsUntil(units_.size());
}

absl::Status DeviceValues::BringUnitsUntil(size_t end) {
  while (next_unit_ < end) {
    if (absl::Status status = BringUnit(units_[next_unit_++]); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status DeviceValues::BringUnit(const Unit& unit) {
  // Then the blocks of units before this one wait for nothing but this device: as many as the ring
  // has (ParameterPath::Options::landing).
  if (absl::Status status = sharing_->await(kMostShared); !status.ok()) return status;
  const auto rest = [&](std::byte* values) { return sharing_->broadcast(values, unit.parts); };
  if (unit.large.has_value()) {
    session_->AwaitParameter(*unit.large).IgnoreError();  // as in BringBucket
    bool pins = MayPin(*unit.large);
    const std::vector<Session::ShownPart> shown =
        FindSources(*unit.large, 0, tensors_[*unit.large].nbytes(), pins);
    if (!pins) ++failed_pins_[*unit.large];
    for (const ParameterPath::Part& part : unit.own) {
      absl::Status status = BringOwn(*unit.large, part, shown);
      if (!status.ok()) return status;
    }
    auto* const to = static_cast<std::byte*>(tensors_[*unit.large].mutable_data_ptr());
    return path_->ShareDirect(to, rest);
  }
  const std::vector<BucketPlan::Part>& bucket = plan_.buckets[unit.bucket];
  brought_[unit.bucket] = true;
  for (const BucketPlan::Part& part : bucket) session_->AwaitParameter(part.tensor).IgnoreError();
  const auto fill = [&](absl::Span<std::byte> values) {
    for (const OwnedPart& part : PartsByOwner(bucket, sharing_->ranges)) {
      if (part.rank != sharing_->rank) continue;
      std::memcpy(values.data() + part.at * sizeof(float),
                  session_->parameter(part.tensor).data() + part.begin * sizeof(float),
                  part.count * sizeof(float));
    }
    return absl::OkStatus();
  };
  return path_->BringShared(PiecesOf(bucket), unit.own, BucketPlan::Size(bucket) * sizeof(float),
                            Deadline(), fill, rest);
}

absl::Status DeviceValues::BringOwn(size_t tensor, const ParameterPath::Part& part,
                                    absl::Span<const Session::ShownPart> shown) {
  auto* const to = static_cast<std::byte*>(tensors_[tensor].mutable_data_ptr());
  const size_t end = part.begin + part.bytes;
  if (!shown.empty()) {
    std::vector<ComputeDevice::HostPart> copies;
    for (const Session::ShownPart& source : shown) {
      const size_t from = std::max(part.begin, source.begin);
      const size_t until = std::min(end, source.begin + source.bytes.size());
      if (from >= until) continue;
      copies.push_back({to + from, source.bytes.subspan(from - source.begin, until - from)});
    }
    return path_->BringDirect(copies);
  }
  const size_t most = options_.staged_elements * sizeof(float);
  for (size_t begin = part.begin; begin < end; begin += most) {
    const size_t bytes = std::min(most, end - begin);
    const auto fill = [&](absl::Span<std::byte> values) {
      std::memcpy(values.data(), session_->parameter(tensor).data() + begin, bytes);
      return absl::OkStatus();
    };
    absl::Status status = path_->BringTo(to + begin, bytes, Deadline(), fill);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace parley
