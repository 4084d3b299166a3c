#ifndef PARLEY_TESTS_SIMULATION_REFERENCES_REFERENCE_NODE_H_
#define PARLEY_TESTS_SIMULATION_REFERENCES_REFERENCE_NODE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/reference/reference_space.h"
#include "tests/simulation/process.h"
#include "tests/simulation/references/reference_simulation.h"

namespace parley {

inline std::string AddressOf(size_t index) { return absl::StrCat("host:", 1000 + index); }
inline size_t IndexOf(const std::string& address) {
  size_t port = 0;
  return absl::SimpleAtoi(address.substr(5), &port) ? port - 1000 : 0;
}

// A value is a number here: the simulation moves no bytes.
inline int64_t NumberOf(const ValuePtr& value) { return value->tensors.at(0).shape.at(0); }

// A process: its references, and what it has in hand.
struct ReferenceSimulation::Node {
  size_t index = 0;
  uint64_t incarnation = 0;
  std::shared_ptr<Process> process;
  std::unique_ptr<ReferenceSpace> space;
  std::vector<ReferenceSpace::Handle> handles;
  std::vector<ReferenceSpace::Handle>
      anchors;  // that keep its sessions while the rest is looked at
  int connecting = 0;
  int fetching = 0;
  int running = 0;
  uint64_t ended_step = 0;
  absl::Duration paused;  // in all
  bool pumping = false;
  bool works = true;

  bool Is(ProcessState state) const {
    switch (state) {
      case kHolds:
        return space->holder().held() != 0;
      case kIsHeld:
        return space->owner().values() != 0;
      case kConnecting:
        return connecting != 0;
      case kCallOpen:
        return space->holder().open_calls() != 0;
      case kFetchOpen:
        return fetching != 0;
      case kArgumentsOpen:
        return space->arriving() != 0;
      default:
        return running != 0;
    }
  }
};

// Uses a process's references as its owner does: the replies run when it is done, and what is to be
// sent or run then is.
template <class Use>
void ReferenceSimulation::Do(const NodePtr& node, const Use& use) {
  {
    Replies replies;
    use(node->process->LocalNow(), replies);
  }
  Pump(node);
}

}  // namespace parley

#endif  // PARLEY_TESTS_SIMULATION_REFERENCES_REFERENCE_NODE_H_
