#include "server/parameter_shard/outgoing.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/utc_text.h"

namespace parley {
namespace {

// Ends a call that would be tried again; nobody looks at it.
absl::Status Stopped() { return absl::AbortedError("this shard sends nothing any more"); }

size_t BytesOf(const ToShard& message) {
  return std::visit([](const auto& request) { return request.ByteSizeLong(); }, message.request);
}

// Who calls this sender fenced is ahead of it: the job has gone back to a checkpoint, and this
// shard follows in a moment, with another Outgoing; or another process has its place. The
// coordinator's state tells which. Until then the call is repeated.
template <class Reply>
Done<Reply> UntilStateIsKnown(Done<Reply> done) {
  return [done = std::move(done)](absl::StatusOr<Reply> reply) {
    if (absl::IsAborted(reply.status())) {
      return done(absl::UnavailableError(reply.status().message()));
    }
    done(std::move(reply));
  };
}

}  // namespace

std::shared_ptr<Outgoing> Outgoing::Make(Options options) {
  return std::shared_ptr<Outgoing>(new Outgoing(std::move(options)));
}

Outgoing::Outgoing(Options options)
    : options_(std::move(options)), caller_(options_.timers, options_.seed) {}

void Outgoing::SetCoordinator(std::shared_ptr<CoordinatorClient> coordinator,
                              std::function<CallHeader()> header) {
  {
    absl::MutexLock lock(&mu_);
    coordinator_ = std::move(coordinator);
    header_ = std::move(header);
  }
  ReportNext();
}

void Outgoing::Send(std::vector<ToShard> requests, const Routing& routing) {
  std::vector<uint32_t> idle;
  std::string left_behind;
  {
    absl::MutexLock lock(&mu_);
    if (stopped_) return;
    for (ToShard& request : requests) {
      const Member* const member = routing.FindShard(request.shard);
      if (member == nullptr) continue;
      Peer& peer = peers_[request.shard];
      if (peer.client == nullptr || peer.address != member->address()) {
        peer.address = member->address();
        peer.name = routing.Describe(member->id());
        peer.client = options_.connector->ConnectShard(peer.address);
      }
      // The first is on its way. An Advance that is not says nothing that the new one does not.
      if (std::holds_alternative<AdvanceRequest>(request.request) && peer.queue.size() > 1 &&
          std::holds_alternative<AdvanceRequest>(peer.queue.back().request)) {
        peer.bytes -= BytesOf(peer.queue.back());
        peer.queue.pop_back();
      }
      if (peer.queue.empty()) {
        idle.push_back(request.shard);
        peer.since = options_.timers->Now();
      }
      if (peer.queue.size() >= kQueue && peer.bytes >= kQueueBytes) {
        left_behind =
            absl::StrCat(peer.name, " has not answered to ", peer.queue.size(),
                         " messages of the step leader, the first since ", FormatUtc(peer.since));
        continue;
      }
      peer.bytes += BytesOf(request);
      peer.queue.push_back(std::move(request));
    }
  }
  for (const uint32_t shard : idle) SendFirst(shard);
  if (!left_behind.empty()) options_.on_error(left_behind);
}

RetryOptions Outgoing::RetriesOf(const std::string& what) const {
  RetryOptions retries;
  retries.what = what;
  retries.deadline = options_.timers->Now() + options_.patience;
  retries.attempt_timeout = options_.attempt_timeout;
  retries.refresh_timeout = options_.patience;
  retries.backoff.first = absl::Milliseconds(2);
  return retries;
}

bool Outgoing::stopped() const {
  absl::MutexLock lock(&mu_);
  return stopped_;
}

template <class Request, class Reply>
void Outgoing::SendRequest(uint32_t shard, const std::shared_ptr<ShardClient>& client,
                           const std::string& what, const Request& request,
                           void (ShardClient::*method)(const Request&, absl::Time, Done<Reply>),
                           std::function<void(const Reply&)> take) {
  const std::shared_ptr<Outgoing> self = shared_from_this();
  caller_.Call<Reply>(
      RetriesOf(what),
      [self, client, request, method](absl::Time deadline, Done<Reply> done) {
        if (self->stopped()) return done(Stopped());
        ((*client).*method)(request, deadline, UntilStateIsKnown(std::move(done)));
      },
      [self, shard, take = std::move(take)](absl::StatusOr<Reply> reply) {
        if (reply.ok() && take != nullptr) {
          absl::MutexLock answering(&self->answer_mu_);
          if (!self->stopped()) take(*reply);
        }
        self->OnAnswered(shard, reply.status());
      });
}

void Outgoing::SendFirst(uint32_t shard) {
  ToShard message;
  std::shared_ptr<ShardClient> client;
  std::string name;
  {
    absl::MutexLock lock(&mu_);
    if (stopped_) return;
    const Peer& peer = peers_[shard];
    message = peer.queue.front();
    client = peer.client;
    name = peer.name;
  }
  if (const auto* close = std::get_if<CloseRequest>(&message.request)) {
    return SendRequest<CloseRequest, CloseReply>(
        shard, client, absl::StrCat("closing step ", close->step(), " on ", name), *close,
        &ShardClient::Close, [this, shard, request = *close](const CloseReply& reply) {
          options_.shard->OnCloseReply(shard, request, reply, options_.timers->Now());
        });
  }
  if (const auto* advance = std::get_if<AdvanceRequest>(&message.request)) {
    return SendRequest<AdvanceRequest, AdvanceReply>(
        shard, client, absl::StrCat("telling ", name, " how far all are"), *advance,
        &ShardClient::Advance, [this, shard, request = *advance](const AdvanceReply& /*reply*/) {
          options_.shard->OnAdvanceReply(shard, request, options_.timers->Now());
        });
  }
  const auto& decide = std::get<DecideRequest>(message.request);
  SendRequest<DecideRequest, DecideReply>(
      shard, client,
      absl::StrCat("sending the verdict of step ", decide.verdict().step(), " to ", name), decide,
      &ShardClient::Decide, /*take=*/nullptr);
}

void Outgoing::OnAnswered(uint32_t shard, const absl::Status& status) {
  std::string name;
  bool more = false;
  {
    absl::MutexLock lock(&mu_);
    if (stopped_) return;
    Peer& peer = peers_[shard];
    name = peer.name;
    peer.bytes -= BytesOf(peer.queue.front());
    peer.queue.pop_front();
    peer.since = options_.timers->Now();
    more = !peer.queue.empty();
  }
  if (!status.ok()) {
    options_.on_error(absl::StrCat(name, " refused the step leader: ", status.message()));
    return;
  }
  if (more) SendFirst(shard);
}

void Outgoing::Report(std::vector<Verdict> verdicts, const JobProgress& progress) {
  {
    absl::MutexLock lock(&mu_);
    if (!verdicts.empty()) Keep(std::move(verdicts), progress);
  }
  ReportNext();
}

void Outgoing::Keep(std::vector<Verdict> verdicts, const JobProgress& progress) {
  progress_ = std::make_shared<const JobProgress>(progress);
  Untold came;
  came.progress = progress_;
  for (auto verdict = verdicts.rbegin(); verdict != verdicts.rend(); ++verdict) {
    const size_t bytes = verdict->ByteSizeLong();
    if (came.bytes + bytes > kReportBytes && !came.verdicts.empty()) break;
    came.bytes += bytes;
    came.verdicts.push_front(std::move(*verdict));
  }
  untold_verdicts_ += came.verdicts.size();
  if (!untold_.empty() && untold_.back().bytes + came.bytes <= kReportBytes) {
    Untold& last = untold_.back();
    std::move(came.verdicts.begin(), came.verdicts.end(), std::back_inserter(last.verdicts));
    last.bytes += came.bytes;
    last.progress = std::move(came.progress);
  } else {
    untold_.push_back(std::move(came));
  }
  while (untold_verdicts_ > kVerdicts) {
    Untold& oldest = untold_.front();
    oldest.bytes -= oldest.verdicts.front().ByteSizeLong();
    oldest.verdicts.pop_front();
    --untold_verdicts_;
    if (oldest.verdicts.empty()) untold_.pop_front();
  }
}

void Outgoing::ReportAgain() {
  {
    absl::MutexLock lock(&mu_);
    again_ = progress_ != nullptr;  // something was decided here
  }
  ReportNext();
}

void Outgoing::ReportNext() {
  ReportVerdictsRequest request;
  std::shared_ptr<CoordinatorClient> coordinator;
  {
    absl::MutexLock lock(&mu_);
    if (stopped_ || reporting_ || coordinator_ == nullptr || (untold_.empty() && !again_)) return;
    reporting_ = true;
    reporting_since_ = options_.timers->Now();
    again_ = false;
    // All that have gathered while the last report was on its way, or as many as it may have.
    std::shared_ptr<const JobProgress> progress = progress_;
    if (!untold_.empty()) {
      Untold& first = untold_.front();
      for (Verdict& verdict : first.verdicts) *request.add_verdicts() = std::move(verdict);
      progress = std::move(first.progress);
      untold_verdicts_ -= first.verdicts.size();
      untold_.pop_front();
    }
    *request.mutable_progress() = *progress;
    coordinator = coordinator_;
  }
  const std::shared_ptr<Outgoing> self = shared_from_this();
  caller_.Call<ReportVerdictsReply>(
      RetriesOf("reporting verdicts to the coordinator"),
      [self, coordinator, request](absl::Time deadline, Done<ReportVerdictsReply> done) mutable {
        {
          absl::MutexLock asking(&self->answer_mu_);
          std::function<CallHeader()> header;
          {
            absl::MutexLock lock(&self->mu_);
            header = self->header_;
          }
          if (header) *request.mutable_header() = header();
        }
        if (self->stopped()) return done(Stopped());
        coordinator->ReportVerdicts(request, deadline, UntilStateIsKnown(std::move(done)));
      },
      [self](absl::StatusOr<ReportVerdictsReply> reply) {
        {
          absl::MutexLock lock(&self->mu_);
          self->reporting_ = false;
          if (self->stopped_) return;
        }
        if (!reply.ok()) {
          self->options_.on_error(
              absl::StrCat("the coordinator refused a verdict: ", reply.status().message()));
          return;
        }
        self->ReportNext();
      });
}

std::vector<Wait> Outgoing::Waits(absl::Time now) const {
  std::vector<Wait> waits;
  const auto add = [&](std::string what, absl::Time since, Role role, uint32_t ordinal) -> Wait& {
    Wait& wait = waits.emplace_back();
    wait.set_what(std::move(what));
    wait.set_seconds(std::max(0.0, absl::ToDoubleSeconds(now - since)));
    wait.set_seconds_left(std::max(0.0, absl::ToDoubleSeconds(since + options_.patience - now)));
    WaitedFor* const on = wait.add_on();
    on->set_role(role);
    on->set_ordinal(ordinal);
    return wait;
  };
  absl::MutexLock lock(&mu_);
  if (stopped_) return waits;
  for (const auto& [shard, peer] : peers_) {
    if (peer.queue.empty()) continue;
    const auto& request = peer.queue.front().request;
    std::string what;
    uint64_t step = 0;
    if (const auto* close = std::get_if<CloseRequest>(&request)) {
      step = close->step();
      what = absl::StrCat("the closing of step ", step);
    } else if (const auto* decide = std::get_if<DecideRequest>(&request)) {
      step = decide->verdict().step();
      what = absl::StrCat("the verdict of step ", step);
    } else {
      const auto& advance = std::get<AdvanceRequest>(request);
      step = advance.floor();
      what = absl::StrCat("the news that all have completed clock ", step);
    }
    add(absl::StrCat(peer.name, " to answer to ", what, "; ", peer.queue.size() - 1,
                     " more behind it"),
        peer.since, SHARD, shard)
        .set_step(step);
  }
  if (reporting_) {
    add("the coordinator to answer to a report of verdicts", reporting_since_, COORDINATOR, 0)
        .set_step(progress_ == nullptr ? 0 : progress_->step());
  }
  return waits;
}

void Outgoing::Stop() {
  absl::MutexLock answering(&answer_mu_);
  absl::MutexLock lock(&mu_);
  stopped_ = true;
  header_ = nullptr;
  coordinator_ = nullptr;
}

bool Outgoing::idle() const {
  absl::MutexLock lock(&mu_);
  if (reporting_ || !untold_.empty()) return false;
  for (const auto& [shard, peer] : peers_) {
    if (!peer.queue.empty()) return false;
  }
  return true;
}

}  // namespace parley
