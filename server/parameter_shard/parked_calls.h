#ifndef PARLEY_SERVER_PARAMETER_SHARD_PARKED_CALLS_H_
#define PARLEY_SERVER_PARAMETER_SHARD_PARKED_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <utility>

namespace parley {

// Calls of one kind that wait for their answer, in the order in which they came, and how many there
// are of each member: of a thousand workers thousands may be parked, and each new one is checked.
// Call has a `member`, which stays as it is. Shard's.
template <class Call>
class ParkedCalls {
 public:
  using iterator = typename std::list<Call>::iterator;
  using const_iterator = typename std::list<Call>::const_iterator;

  void push_back(Call call) {
    ++of_member_[call.member];
    calls_.push_back(std::move(call));
  }
  iterator erase(iterator call) {
    const auto count = of_member_.find(call->member);
    if (--count->second == 0) of_member_.erase(count);
    return calls_.erase(call);
  }
  void clear() {
    calls_.clear();
    of_member_.clear();
  }

  iterator begin() { return calls_.begin(); }
  iterator end() { return calls_.end(); }
  const_iterator begin() const { return calls_.begin(); }
  const_iterator end() const { return calls_.end(); }
  bool empty() const { return calls_.empty(); }
  size_t size() const { return calls_.size(); }
  size_t OfMember(uint64_t member) const {
    const auto count = of_member_.find(member);
    return count == of_member_.end() ? 0 : count->second;
  }

 private:
  std::list<Call> calls_;
  std::map<uint64_t, size_t> of_member_;
};

}  // namespace parley

#endif  // PARLEY_SERVER_PARAMETER_SHARD_PARKED_CALLS_H_
