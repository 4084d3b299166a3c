#ifndef PARLEY_WORKER_STREAM_TRACE_H_
#define PARLEY_WORKER_STREAM_TRACE_H_

#include <vector>

#include "client/trace.h"
#include "worker/device/timed_device.h"

namespace parley {

// What a device's streams did in a step, each a lane of the trace: "GPU: compute".
void TraceStreams(const std::vector<TimedDevice::Work>& works, Trace& trace);

}  // namespace parley

#endif  // PARLEY_WORKER_STREAM_TRACE_H_
