#include "worker/stream_trace.h"

#include "absl/strings/str_cat.h"

namespace parley {

void TraceStreams(const std::vector<TimedDevice::Work>& works, Trace& trace) {
  for (const TimedDevice::Work& work : works) {
    trace.Span(absl::StrCat("GPU: ", StreamName(work.stream)), work.what, work.begin, work.end);
  }
}

}  // namespace parley
