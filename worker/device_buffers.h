#ifndef PARLEY_WORKER_DEVICE_BUFFERS_H_
#define PARLEY_WORKER_DEVICE_BUFFERS_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/session.h"
#include "client/torch/module_binding.h"
#include "worker/device/buffer_path.h"
#include "worker/device/device.h"

namespace parley {

// A network's buffers (running means, counts) that lie on a device: to the session as forward has
// left them, and back where the session's are others. What lists the network's tensors, the device
// and the shadows, its tensors on the host, must outlive it. DeviceBinding's.
class DeviceBuffers {
 public:
  static absl::StatusOr<std::unique_ptr<DeviceBuffers>> Make(
      ComputeDevice& device, const ModuleBinding::Lister& network,
      const std::vector<NamedTensor>& shadows, absl::Duration patience);
  // module: of the shadows, attached to the session.
  void Attach(Session& session, ModuleBinding& module);

  // Forward is done, as far as the compute stream has been told: they are on their way. The
  // training thread.
  absl::Status Fetch();
  // If they are: into the session's memory, and pushed where the step goes on. Waits for them. One
  // thread at a time, any.
  absl::Status Receive(bool push);
  // Values that were pulled, where they are not what the network has. The training thread.
  absl::Status Bring();

 private:
  DeviceBuffers(ComputeDevice& device, const ModuleBinding::Lister& network,
                const std::vector<NamedTensor>& shadows, absl::Duration patience)
      : device_(device), network_(network), shadows_(shadows), patience_(patience) {}
  absl::Time Deadline() const;
  // Those of the network now; a scripted module may have put others in their places.
  absl::StatusOr<std::vector<at::Tensor>> OfNetwork() const;
  std::vector<BufferPath::Place> PlacesOf(const std::vector<at::Tensor>& buffers) const;

  ComputeDevice& device_;
  const ModuleBinding::Lister& network_;
  const std::vector<NamedTensor>& shadows_;
  const absl::Duration patience_;
  std::vector<size_t> tensors_;  // by the session's index
  std::unique_ptr<BufferPath> path_;
  Session* session_ = nullptr;  // set by Attach
  ModuleBinding* module_ = nullptr;

  std::vector<at::Tensor> fetched_;  // the network's, of which values are on their way
  // The network's since Fetch, until Bring: no forward has been in between. To list them takes as
  // long as a small layer's forward, while nothing else is under way.
  std::vector<at::Tensor> listed_;
  // Of each: what the network has there, if that is known.
  std::vector<std::vector<std::byte>> on_device_;
};

}  // namespace parley

#endif  // PARLEY_WORKER_DEVICE_BUFFERS_H_
