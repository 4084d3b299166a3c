#include "server/coordinator/succession.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/coordinator/first_cause.h"

namespace parley {

bool Succession::Sighting::operator==(const Sighting& other) const {
  return number == other.number && generation == other.generation && writer == other.writer &&
         address == other.address && over == other.over;
}

Succession::Succession(std::string job, absl::Duration liveness, absl::Time now)
    : job_(std::move(job)), liveness_(liveness), began_(now) {}

Succession::Next Succession::Decide(absl::Time now) {
  // A clock that was set back must not lengthen the wait.
  if (state_ == State::kResting && (now >= rest_until_ || now < looked_at_)) {
    state_ = State::kLooking;
  }
  Next next;
  switch (state_) {
    case State::kLooking:
      next.kind = Kind::kLook;
      break;
    case State::kAsking:
      next.kind = Kind::kAsk;
      next.address = to_ask_.back();
      break;
    case State::kResting:
      next.kind = Kind::kWait;
      next.until = rest_until_;
      break;
    case State::kMayTake:
      next.kind = Kind::kTake;
      break;
    case State::kRefused:
      next.kind = Kind::kRefused;
      next.status = refused_;
      break;
  }
  return next;
}

void Succession::Looked(const Sighting& sighting, absl::Time now) {
  if (state_ != State::kLooking) return;
  if (!sighting_ || !(*sighting_ == sighting) || now < quiet_since_) quiet_since_ = now;
  began_ = std::min(began_, now);
  sighting_ = sighting;
  looked_at_ = now;
  to_ask_.clear();
  if (!sighting.writer.empty()) to_ask_.push_back(sighting.writer);
  if (!sighting.address.empty() && sighting.address != sighting.writer) {
    to_ask_.push_back(sighting.address);
  }
  state_ = State::kAsking;
  if (to_ask_.empty()) EndRound(now);
}

void Succession::Answered(const absl::StatusOr<GetStatusReply>& reply, absl::Time now) {
  if (state_ != State::kAsking) return;
  const std::string address = std::move(to_ask_.back());
  to_ask_.pop_back();
  if (reply.ok() && reply->job() == job_ && reply->generation() >= sighting_->generation) {
    refused_ = absl::AlreadyExistsError(absl::StrCat("a coordinator of job '", job_,
                                                     "' runs already for this directory: it "
                                                     "answers at ",
                                                     address, " (generation ", reply->generation(),
                                                     "); stop it first, or choose another --out"));
    state_ = State::kRefused;
    return;
  }
  if (to_ask_.empty()) EndRound(now);
}

void Succession::EndRound(absl::Time now) {
  const bool no_trace = (sighting_->number == 0 || sighting_->over) && sighting_->address.empty();
  if (no_trace || looked_at_ - quiet_since_ >= liveness_) {
    state_ = State::kMayTake;
    return;
  }
  if (now - began_ >= kPatience * liveness_) {
    refused_ = absl::UnavailableError(absl::StrCat(
        "the coordinator of generation ", sighting_->generation, " at ", sighting_->writer,
        " still writes records of job '", job_, "' (the last one is number ", sighting_->number,
        "), but has not answered here since ", FormatUtc(began_),
        ": is the network between the two machines cut? Stop that one first"));
    state_ = State::kRefused;
    return;
  }
  rest_until_ = std::min(looked_at_ + liveness_ / 4, quiet_since_ + liveness_);
  state_ = State::kResting;
}

}  // namespace parley
