#ifndef PARLEY_SERVER_PIPELINE_STAGE_SCHEDULE_SCHEDULE_H_
#define PARLEY_SERVER_PIPELINE_STAGE_SCHEDULE_SCHEDULE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace parley {

// A model is cut into parts, 0 the first. A stage is a process that has one part or more; what one
// microbatch does in one part are its forward and its backward. Where a part's two neighbours are
// on other stages, tensors travel: activations forward, their gradients back.

enum class ActionKind : uint8_t {
  kForward,
  kBackward,        // the whole of it
  kInputGradient,   // the half of a backward that the part before waits for
  kWeightGradient,  // the other half, which nobody waits for (Qi et al. 2023, "Zero Bubble")
  kSendActivation,
  kReceiveActivation,
  kSendGradient,
  kReceiveGradient,
  kUpdate,  // push what the part's weights have gathered; `microbatch` is the last one in it
};

struct Action {
  ActionKind kind = ActionKind::kForward;
  uint32_t part = 0;  // here
  uint32_t microbatch = 0;
  uint32_t peer = 0;  // of a message: the part at its other end

  friend bool operator==(const Action& a, const Action& b) {
    return a.kind == b.kind && a.part == b.part && a.microbatch == b.microbatch && a.peer == b.peer;
  }
};

// Whether it computes; else it is a message, or an update.
bool IsCompute(ActionKind kind);
bool IsSend(ActionKind kind);
bool IsReceive(ActionKind kind);

// What every stage does in one step, or in a stretch of an asynchronous job, and in which order.
// A value: it is printed, read back, drawn (timeline.h), checked (check.h) and its time foretold
// (prediction.h) before anything starts.
struct Schedule {
  uint32_t parts = 0;
  uint32_t microbatches = 0;
  std::vector<std::vector<Action>> stages;

  friend bool operator==(const Schedule& a, const Schedule& b) {
    return a.parts == b.parts && a.microbatches == b.microbatches && a.stages == b.stages;
  }
};

// An edge of the model: what part `from` computes is an input of part `to`, a later one. Not only
// neighbours have one: a skip connection may leave out parts.
struct PartEdge {
  uint32_t from = 0;
  uint32_t to = 0;

  friend bool operator==(const PartEdge& a, const PartEdge& b) {
    return a.from == b.from && a.to == b.to;
  }
};

// Each part with the next one.
std::vector<PartEdge> ChainOf(uint32_t parts);

// A line for the whole and one for each stage:
//   pipeline of 2 parts, 3 microbatches
//   stage 0: F0.0 A0>1.0 F0.1 A0>1.1 G0<1.0 B0.0 ... U0.2
// F, B, I, W, U are forward, backward, input and weight gradient and update, as PART.MICROBATCH;
// A is an activation and G a gradient, as HERE>PEER.MICROBATCH where it is sent and
// HERE<PEER.MICROBATCH where it is received.
std::string ToText(const Action& action);
std::string ToText(const Schedule& schedule);

// What ToText has made. InvalidArgument, naming line and word, for anything else.
absl::StatusOr<Schedule> ParseSchedule(absl::string_view text);

}  // namespace parley

#endif  // PARLEY_SERVER_PIPELINE_STAGE_SCHEDULE_SCHEDULE_H_
