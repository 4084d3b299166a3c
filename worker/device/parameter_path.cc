#include "worker/device/parameter_path.h"

#include <utility>

#include "absl/memory/memory.h"

namespace parley {

absl::StatusOr<std::unique_ptr<ParameterPath>> ParameterPath::Make(ComputeDevice& device,
                                                                   const Options& options) {
  auto path = absl::WrapUnique(new ParameterPath(device));
  auto ring =
      DeviceRing::Make(device, "buckets of parameters", options.landing, options.bucket_bytes);
  if (!ring.ok()) return ring.status();
  path->ring_ = *std::move(ring);
  path->staging_ = std::make_unique<Staging>(device, "buckets of parameters", options.bucket_bytes,
                                             options.most_pinned);
  for (auto* const event : {&path->landed_, &path->shared_, &path->used_}) {
    auto made = device.MakeEvent();
    if (!made.ok()) return made.status();
    *event = *std::move(made);
  }
  return path;
}

absl::Status ParameterPath::Begin() {
  absl::Status status = device_.Record(*used_, StreamId::kCompute);
  return status.ok() ? device_.Wait(StreamId::kToDevice, *used_) : status;
}

absl::Status ParameterPath::BringDirect(absl::Span<const ComputeDevice::HostPart> parts) {
  absl::Status status = device_.CopyPartsToDevice(StreamId::kToDevice, parts);
  if (status.ok()) status = device_.Record(*landed_, StreamId::kToDevice);
  return status.ok() ? device_.Wait(StreamId::kCompute, *landed_) : status;
}

absl::StatusOr<size_t> ParameterPath::Filled(
    size_t bytes, absl::Time deadline,
    absl::FunctionRef<absl::Status(absl::Span<std::byte> values)> fill) {
  if (bytes > ring_->block_bytes()) {
    return absl::InvalidArgumentError("a bucket of parameters is larger than its memory");
  }
  const auto block = staging_->Take(deadline);
  if (!block.ok()) return block.status();
  std::byte* const values = staging_->block(*block);
  device_.HostWrites(values, bytes);
  if (absl::Status status = fill(absl::MakeSpan(values, bytes)); !status.ok()) {
    staging_->Release(*block);
    return status;
  }
  return *block;
}

absl::Status ParameterPath::Bring(
    absl::Span<const Piece> pieces, BucketType type, size_t bytes, absl::Time deadline,
    absl::FunctionRef<absl::Status(absl::Span<std::byte> values)> fill) {
  const auto block = Filled(bytes, deadline, fill);
  if (!block.ok()) return block.status();
  const auto landing = ring_->Take(StreamId::kToDevice);
  if (!landing.ok()) return landing.status();
  std::byte* const to = ring_->block(*landing);
  absl::Status status =
      device_.CopyToDevice(StreamId::kToDevice, to, staging_->block(*block), bytes);
  if (status.ok()) status = staging_->ReleaseAfter(*block, StreamId::kToDevice);
  if (status.ok()) status = device_.Record(*landed_, StreamId::kToDevice);
  if (status.ok()) status = device_.Wait(StreamId::kCompute, *landed_);
  if (status.ok()) status = device_.Unpack(StreamId::kCompute, pieces, type, to);
  if (status.ok()) status = ring_->Release(*landing, StreamId::kCompute);
  return status;
}

absl::Status ParameterPath::BringShared(
    absl::Span<const Piece> pieces, absl::Span<const Part> own, size_t bytes, absl::Time deadline,
    absl::FunctionRef<absl::Status(absl::Span<std::byte> values)> fill, Rest rest) {
  const auto block = Filled(bytes, deadline, fill);
  if (!block.ok()) return block.status();
  const auto landing = ring_->Take(StreamId::kToDevice);
  if (!landing.ok()) return landing.status();
  std::byte* const to = ring_->block(*landing);
  absl::Status status;
  for (const Part& part : own) {
    if (!status.ok()) return status;
    status = device_.CopyToDevice(StreamId::kToDevice, to + part.begin,
                                  staging_->block(*block) + part.begin, part.bytes);
  }
  if (status.ok()) status = staging_->ReleaseAfter(*block, StreamId::kToDevice);
  if (status.ok()) status = ShareDirect(to, rest);
  if (status.ok()) status = device_.Unpack(StreamId::kCompute, pieces, BucketType::kFloat32, to);
  if (status.ok()) status = ring_->Release(*landing, StreamId::kCompute);
  return status;
}

absl::Status ParameterPath::ShareDirect(std::byte* tensor, Rest rest) {
  absl::Status status = device_.Record(*landed_, StreamId::kToDevice);
  if (status.ok()) status = device_.Wait(StreamId::kCommunication, *landed_);
  if (status.ok()) status = rest(tensor);
  if (status.ok()) status = device_.Record(*shared_, StreamId::kCommunication);
  return status.ok() ? device_.Wait(StreamId::kCompute, *shared_) : status;
}

absl::Status ParameterPath::BringTo(
    std::byte* place, size_t bytes, absl::Time deadline,
    absl::FunctionRef<absl::Status(absl::Span<std::byte> values)> fill) {
  const auto block = Filled(bytes, deadline, fill);
  if (!block.ok()) return block.status();
  absl::Status status = BringDirect({{place, {staging_->block(*block), bytes}}});
  return status.ok() ? staging_->ReleaseAfter(*block, StreamId::kToDevice) : status;
}

}  // namespace parley
