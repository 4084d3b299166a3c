#include "client/parley/wait_graph.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace parley {
namespace {

// The graph of those that are stuck and of all that they wait for.
class WaitGraph {
 public:
  WaitGraph(const std::vector<AskedProcess>& processes, absl::Duration longer_than)
      : longer_than_(absl::ToDoubleSeconds(longer_than)) {
    for (const AskedProcess& process : processes) processes_[process.place] = &process;
    for (const AskedProcess& process : processes) {
      if (IsStuck(process)) Reach(process.place);
    }
  }

  std::vector<RootCause> RootCauses() {
    std::vector<RootCause> causes;
    std::set<Place> seen;
    for (const auto& [place, next] : edges_) {
      if (seen.count(place) != 0) continue;
      // Those that wait for each other: each can be reached from the other.
      std::vector<Place> component = {place};
      for (const auto& [other, unused] : edges_) {
        if (other != place && Leads(place, other) && Leads(other, place)) {
          component.push_back(other);
        }
      }
      seen.insert(component.begin(), component.end());
      const bool is_sink = std::all_of(component.begin(), component.end(), [&](const Place& from) {
        return std::all_of(edges_.at(from).begin(), edges_.at(from).end(), [&](const Place& to) {
          return std::count(component.begin(), component.end(), to) != 0;
        });
      });
      if (is_sink) causes.push_back(Describe(component));
    }
    std::stable_sort(causes.begin(), causes.end(), [](const RootCause& a, const RootCause& b) {
      return std::tuple(a.kind, b.waiting.size(), b.seconds) <
             std::tuple(b.kind, a.waiting.size(), a.seconds);
    });
    return causes;
  }

 private:
  using Kind = RootCause::Kind;

  bool IsStuck(const AskedProcess& process) const {
    if (process.answer == AskedProcess::Answer::kSilent) return true;
    return std::any_of(process.waits.begin(), process.waits.end(),
                       [&](const Wait& wait) { return wait.seconds() >= longer_than_; });
  }

  // The waits that count: the long ones, if there are any.
  std::vector<const Wait*> WaitsOf(const Place& place) const {
    const auto process = processes_.find(place);
    std::vector<const Wait*> waits;
    if (process == processes_.end()) return waits;
    const bool stuck = IsStuck(*process->second);
    for (const Wait& wait : process->second->waits) {
      if (!stuck || wait.seconds() >= longer_than_) waits.push_back(&wait);
    }
    return waits;
  }

  // The place and all that it waits for become part of the graph.
  void Reach(const Place& start) {
    std::vector<Place> open = {start};
    while (!open.empty()) {
      const Place place = open.back();
      open.pop_back();
      if (edges_.count(place) != 0) continue;
      std::vector<Place>& next = edges_[place];
      for (const Wait* wait : WaitsOf(place)) {
        for (const WaitedFor& on : wait->on()) next.emplace_back(on.role(), on.ordinal());
      }
      open.insert(open.end(), next.begin(), next.end());
    }
  }

  // Whether a waits for b, directly or through others. Not `a` for itself without an edge.
  bool Leads(const Place& a, const Place& b) const {
    std::set<Place> seen;
    std::vector<Place> open = edges_.at(a);
    while (!open.empty()) {
      const Place place = open.back();
      open.pop_back();
      if (place == b) return true;
      if (!seen.insert(place).second) continue;
      open.insert(open.end(), edges_.at(place).begin(), edges_.at(place).end());
    }
    return false;
  }

  RootCause Describe(std::vector<Place> component) const {
    RootCause cause;
    const Place root = component.front();
    const auto found = processes_.find(root);
    const AskedProcess* const process = found == processes_.end() ? nullptr : found->second;
    for (const auto& [place, next] : edges_) {
      if (std::count(component.begin(), component.end(), place) == 0 && Leads(place, root)) {
        cause.waiting.push_back(place);
      }
    }
    const Wait* longest_on_root = nullptr;
    for (const auto& [place, next] : edges_) {
      for (const Wait* wait : WaitsOf(place)) {
        const bool own = std::count(component.begin(), component.end(), place) != 0;
        const bool on_root = std::any_of(
            wait->on().begin(), wait->on().end(),
            [&](const WaitedFor& on) { return Place(on.role(), on.ordinal()) == root; });
        if (own || on_root) cause.seconds = std::max(cause.seconds, wait->seconds());
        if (on_root && (longest_on_root == nullptr || longest_on_root->seconds() < wait->seconds()))
          longest_on_root = wait;
      }
    }

    if (component.size() > 1 || Leads(root, root)) {
      cause.kind = Kind::kCycle;
      cause.places = Cycle(root);
      cause.text = absl::StrCat("these wait for each other: ", Path(cause.places));
    } else {
      cause.places = component;
      if (process == nullptr) {
        cause.kind = Kind::kAbsent;
        cause.text = absl::StrCat("nobody is there as ", PlaceName(root));
        if (longest_on_root != nullptr) absl::StrAppend(&cause.text, ": ", longest_on_root->what());
      } else if (process->answer == AskedProcess::Answer::kSilent) {
        cause.kind = Kind::kSilent;
        cause.text = absl::StrCat(process->name, " does not answer (", process->error, ")",
                                  LastHeardOf(*process));
      } else if (process->answer == AskedProcess::Answer::kCannot) {
        cause.kind = Kind::kUntold;
        cause.text = absl::StrCat(process->name, " cannot say what it waits for (", process->error,
                                  ")", LastHeardOf(*process));
      } else if (const std::vector<const Wait*> work = WaitsOf(root); !work.empty()) {
        const Wait* const longest = *std::max_element(
            work.begin(), work.end(),
            [](const Wait* a, const Wait* b) { return a->seconds() < b->seconds(); });
        cause.kind = Kind::kWorking;
        cause.text = absl::StrCat(process->name, " is at work: ", longest->what(),
                                  absl::StrFormat(" (for %.1f s)", longest->seconds()));
      } else {
        cause.kind = Kind::kIdle;
        cause.text = absl::StrCat(process->name, " is waited for, and waits for nothing itself");
        if (longest_on_root != nullptr) absl::StrAppend(&cause.text, ": ", longest_on_root->what());
      }
    }
    if (!cause.waiting.empty()) {
      absl::StrAppend(&cause.text,
                      cause.waiting.size() == 1 ? "; waits for it: " : "; wait for it: ",
                      absl::StrJoin(cause.waiting, ", ", [](std::string* out, const Place& place) {
                        out->append(PlaceName(place));
                      }));
    }
    return cause;
  }

  static std::string LastHeardOf(const AskedProcess& process) {
    if (process.silent_for < 0) return "";
    return absl::StrFormat("; the coordinator heard of it %.1f s ago", process.silent_for);
  }

  // A shortest way from `start` back to itself.
  std::vector<Place> Cycle(const Place& start) const {
    std::map<Place, Place> from;
    std::vector<Place> layer = {start};
    while (!layer.empty()) {
      std::vector<Place> next_layer;
      for (const Place& place : layer) {
        for (const Place& next : edges_.at(place)) {
          if (next == start) {
            std::vector<Place> cycle;
            for (Place at = place; at != start; at = from.at(at)) cycle.push_back(at);
            cycle.push_back(start);
            std::reverse(cycle.begin(), cycle.end());
            return cycle;
          }
          if (from.emplace(next, place).second) next_layer.push_back(next);
        }
      }
      layer = std::move(next_layer);
    }
    return {start};
  }

  std::string Path(const std::vector<Place>& cycle) const {
    std::string path;
    for (size_t i = 0; i < cycle.size(); ++i) {
      const Place& next = cycle[(i + 1) % cycle.size()];
      absl::StrAppend(&path, PlaceName(cycle[i]));
      for (const Wait* wait : WaitsOf(cycle[i])) {
        const bool is_this = std::any_of(
            wait->on().begin(), wait->on().end(),
            [&](const WaitedFor& on) { return Place(on.role(), on.ordinal()) == next; });
        if (!is_this) continue;
        absl::StrAppend(&path, " (", wait->what(), ")");
        break;
      }
      path += " -> ";
    }
    return absl::StrCat(path, PlaceName(cycle.front()));
  }

  const double longer_than_;
  std::map<Place, const AskedProcess*> processes_;
  std::map<Place, std::vector<Place>> edges_;  // of all that are reached; to others of them
};

}  // namespace

std::string PlaceName(const Place& place) {
  const std::string role = absl::AsciiStrToLower(Role_Name(place.first));
  return place.first == COORDINATOR ? role : absl::StrCat(role, "-", place.second);
}

std::vector<RootCause> FindRootCauses(const std::vector<AskedProcess>& processes,
                                      absl::Duration longer_than) {
  return WaitGraph(processes, longer_than).RootCauses();
}

}  // namespace parley
