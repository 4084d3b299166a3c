#ifndef PARLEY_WORKER_DEVICE_TESTING_DEVICE_CONTRACT_H_
#define PARLEY_WORKER_DEVICE_TESTING_DEVICE_CONTRACT_H_

#include <memory>

#include "absl/status/statusor.h"
#include "worker/device/device.h"

namespace parley {

// The device that the contract suite (device_contract.cc) is run over; defined by what links it.
absl::StatusOr<std::unique_ptr<ComputeDevice>> MakeDeviceUnderTest();

}  // namespace parley

#endif  // PARLEY_WORKER_DEVICE_TESTING_DEVICE_CONTRACT_H_
