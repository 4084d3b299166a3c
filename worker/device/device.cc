#include "worker/device/device.h"

#include "absl/strings/str_cat.h"

namespace parley {

absl::string_view StreamName(StreamId stream) {
  switch (stream) {
    case StreamId::kCompute:
      return "compute";
    case StreamId::kToHost:
      return "to host";
    case StreamId::kToDevice:
      return "to device";
    case StreamId::kCommunication:
      return "communication";
  }
  return "?";
}

absl::Status ComputeDevice::CopyPartsToDevice(StreamId stream, absl::Span<const HostPart> parts) {
  for (const HostPart& part : parts) {
    absl::Status status = CopyToDevice(stream, part.device, part.host.data(), part.host.size());
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status OutOfMemory(const std::string& device, absl::string_view what, size_t bytes,
                         ComputeDevice::Memory memory) {
  return absl::ResourceExhaustedError(absl::StrCat(what, ": no room for ", bytes, " bytes on ",
                                                   device, ", which has ", memory.free,
                                                   " bytes free of ", memory.total));
}

}  // namespace parley
