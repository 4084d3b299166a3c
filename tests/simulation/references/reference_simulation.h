#ifndef PARLEY_TESTS_SIMULATION_REFERENCES_REFERENCE_SIMULATION_H_
#define PARLEY_TESTS_SIMULATION_REFERENCES_REFERENCE_SIMULATION_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/reference/reference_space.h"
#include "tests/simulation/process.h"
#include "tests/simulation/references/reference_faults.h"
#include "tests/simulation/world.h"

namespace parley {

// A few processes that make values, call each other with references, pass on what they were passed,
// fetch, copy and drop, at random, over a network and on machines with faults; all from a seed, in
// virtual time. At the end everything is dropped, and nothing may be left. What it checks is listed
// in docs/simulation.md.
class ReferenceSimulation {
 public:
  struct Options {
    uint64_t seed = 1;
    size_t processes = 4;
    absl::Duration length = absl::Seconds(20);
    absl::Duration lease = absl::Seconds(2);
    absl::Duration patience = absl::Seconds(3);
    bool scopes = true;  // some values belong to a step, and steps end
    // Messages go wrong, but nothing that a lease would notice: then no use of a reference may
    // fail.
    bool calm = false;
    ReferenceFaults faults;
    int kills = 0;
    int short_pauses = 0;
    int long_pauses = 0;
    int cuts = 0;        // between two
    int isolations = 0;  // of one from all
    int aimed = 0;       // kills at a message
  };
  struct Counts {
    uint64_t events = 0;
    uint64_t references = 0;
    uint64_t fetched = 0;
    uint64_t failed = 0;
    uint64_t runs = 0;
    uint64_t ahead = 0;            // values that came with their call
    uint64_t most_operations = 0;  // that an owner remembered at a time
  };

  explicit ReferenceSimulation(Options options);
  ~ReferenceSimulation();

  // What was broken; empty: nothing.
  std::vector<std::string> Run();

  const ReferenceCoverage& coverage() const { return coverage_; }
  const Counts& counts() const { return counts_; }

 private:
  struct Node;
  using NodePtr = std::shared_ptr<Node>;
  struct Aim {
    MessageFault fault;
    MessageType type;
  };
  using Answer = std::function<void(absl::StatusOr<FromOwner>)>;

  // The machines.
  NodePtr StartNode(size_t index);
  void Kill(const NodePtr& node);
  void Restart(size_t index);
  void PlanFaults();
  void AtRandomTime(const std::function<void()>& fault);
  void Saw(const NodePtr& node, ProcessFault fault);
  bool IsCut(size_t a, size_t b) const;

  // The network.
  void Send(const NodePtr& from, ToOwner message);
  void Deliver(const NodePtr& from, const std::shared_ptr<const ToOwner>& message,
               const Answer& answer);
  void Handle(const NodePtr& node, const ToOwner& message, absl::Time deadline, Answer answer);
  absl::Duration Latency(MessageType type);
  bool TakeAim(MessageFault fault, MessageType type);

  void RunFor(absl::Duration time);
  void Anchor(const NodePtr& node);
  void DropAll(std::vector<ReferenceSpace::Handle> Node::*handles);

  // What the processes do.
  template <class Use>
  void Do(const NodePtr& node, const Use& use);
  void Pump(const NodePtr& node);
  void Tick(const NodePtr& node);
  void Act(const NodePtr& node);
  void ConnectTo(const NodePtr& node, const std::string& address);
  void CallSome(const NodePtr& node, const std::string& function);
  void FetchOne(const NodePtr& node, ReferenceSpace::Handle handle);
  void Begin(const NodePtr& node, const ReferenceSpace::Run& run);
  void Sum(const NodePtr& node, const ReferenceSpace::Run& run);
  void Forward(const NodePtr& node, const ReferenceSpace::Run& run);
  void FinishLater(const NodePtr& node, const ReferenceSpace::Run& run,
                   absl::StatusOr<int64_t> number);
  void EndStep();
  ReferenceScope SomeScope(const NodePtr& node);

  // What is checked.
  void Break(std::string what);
  void OnFreed(const NodePtr& owner, const ReferenceId& id, ReferenceOwner::Why why);
  void CheckArguments(const NodePtr& node, const ReferenceSpace::Run& run);
  void CheckFetched(const NodePtr& node, const ReferenceId& id, absl::Time began,
                    const absl::StatusOr<FetchedValue>& fetched);
  void CheckFailure(const absl::Status& status, const std::string& what);
  void CheckOnlyAnchorsAreLeft();
  void CheckOnlyLinksAreLeft();
  void CheckNothingIsLeft();

  const Options options_;
  World world_;
  std::vector<NodePtr> nodes_;             // by index; the living one at this address
  std::vector<NodePtr> former_;            // whose events may still come
  std::map<uint64_t, absl::Time> killed_;  // by incarnation
  std::map<std::pair<size_t, size_t>, absl::Time> cuts_;
  std::vector<Aim> aims_;
  bool healed_ = false;
  uint64_t step_ = 1;
  std::map<ReferenceId, int64_t> values_;  // what they are
  std::set<ReferenceId> ran_;
  std::set<uint64_t> revoked_;  // sessions
  std::vector<std::string> broken_;
  ReferenceCoverage coverage_;
  Counts counts_;
};

}  // namespace parley

#endif  // PARLEY_TESTS_SIMULATION_REFERENCES_REFERENCE_SIMULATION_H_
