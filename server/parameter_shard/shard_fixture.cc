#include "server/parameter_shard/shard_fixture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "absl/strings/str_cat.h"
#include "common/tensor.h"

namespace parley::testing {

ClusterView MakeView(const ViewOptions& options) {
  ClusterView view;
  view.set_view_epoch(options.view_epoch);
  view.set_first_step(1);
  for (uint32_t i = 0; i < options.shards; ++i) {
    Member& member = *view.add_members();
    member.set_id(101 + i);
    member.set_role(SHARD);
    member.set_ordinal(i);
    member.set_incarnation(1001 + i);
    member.set_address(absl::StrCat("10.0.0.", i, ":1"));
  }
  for (uint32_t i = 0; i < options.workers; ++i) {
    Member& member = *view.add_members();
    member.set_id(1 + i);
    member.set_role(WORKER);
    member.set_ordinal(i);
    member.set_incarnation(11 + i);
    member.set_address(absl::StrCat("10.0.1.", i, ":1"));
    Contributor& contributor = *view.add_contributors();
    contributor.set_ordinal(i);
    contributor.add_part_members(member.id());
  }
  std::mt19937_64 random(options.placement_seed);
  for (size_t t = 0; t < options.tensors.size(); ++t) {
    const TestTensor& tensor = options.tensors[t];
    TensorSpec& spec = *view.add_tensors();
    spec.set_name(tensor.name);
    spec.set_dtype(tensor.dtype);
    spec.add_shape(static_cast<int64_t>(tensor.elements));
    spec.set_buffer(tensor.buffer);
    for (uint64_t begin = 0; begin < tensor.elements; begin += options.slice_elements) {
      const uint32_t id = static_cast<uint32_t>(view.slices_size());
      Slice& slice = *view.add_slices();
      slice.set_id(id);
      slice.set_tensor(static_cast<uint32_t>(t));
      slice.set_begin(begin);
      slice.set_end(std::min(begin + options.slice_elements, tensor.elements));
      slice.set_shard(options.placement_seed == 0 ? id % options.shards
                                                  : random() % options.shards);
    }
  }
  return view;
}

namespace {

// Takes whoever has the place out of the members.
void Leave(ClusterView& view, uint32_t ordinal) {
  view.set_view_epoch(view.view_epoch() + 1);
  for (int i = 0; i < view.members_size(); ++i) {
    if (view.members(i).role() != WORKER || view.members(i).ordinal() != ordinal) continue;
    view.mutable_members()->DeleteSubrange(i, 1);
    return;
  }
}

Contributor* Find(ClusterView& view, uint32_t ordinal) {
  for (Contributor& contributor : *view.mutable_contributors()) {
    if (contributor.ordinal() == ordinal) return &contributor;
  }
  return nullptr;
}

}  // namespace

ClusterView Without(ClusterView view, uint32_t ordinal) {
  Leave(view, ordinal);
  for (int i = 0; i < view.contributors_size(); ++i) {
    if (view.contributors(i).ordinal() != ordinal) continue;
    view.mutable_contributors()->DeleteSubrange(i, 1);
    break;
  }
  return view;
}

ClusterView WithNobodyAt(ClusterView view, uint32_t ordinal) {
  Leave(view, ordinal);
  Find(view, ordinal)->set_part_members(0, 0);
  return view;
}

ClusterView WithMemberAt(ClusterView view, uint32_t ordinal, uint64_t member) {
  Leave(view, ordinal);
  Member& added = *view.add_members();
  added.set_id(member);
  added.set_role(WORKER);
  added.set_ordinal(ordinal);
  added.set_incarnation(10 + member);
  added.set_address(absl::StrCat("10.0.1.", member, ":1"));
  Contributor* contributor = Find(view, ordinal);
  if (contributor == nullptr) contributor = view.add_contributors();
  contributor->set_ordinal(ordinal);
  contributor->clear_part_members();
  contributor->add_part_members(member);
  return view;
}

JobConfig MeanJob() {
  JobConfig job;
  job.set_name("test");
  job.mutable_optimizer()->mutable_sgd()->set_rate(1);
  job.mutable_consistency()->mutable_sync()->set_reduction(MEAN);
  job.mutable_cluster()->set_workers(1);
  return job;
}

JobConfig SummingJob() {
  JobConfig job = MeanJob();
  job.mutable_consistency()->mutable_sync()->set_reduction(SUM);
  return job;
}

CallHeader HeaderOf(const ClusterView& view, uint64_t member) {
  CallHeader header;
  header.set_job("test");
  header.set_member(member);
  for (const Member& candidate : view.members()) {
    if (candidate.id() == member) header.set_incarnation(candidate.incarnation());
  }
  header.set_job_epoch(view.job_epoch());
  header.set_view_epoch(view.view_epoch());
  return header;
}

std::string BytesOf(const std::vector<float>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

std::vector<float> FloatsOf(absl::string_view bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

ShardCluster::ShardCluster(const JobConfig& job, const ClusterView& view, bool start,
                           const ShardResources& resources)
    : view_(view) {
  uint32_t count = 0;
  for (const Member& member : view.members()) count += member.role() == SHARD;
  for (uint32_t i = 0; i < count; ++i)
    shards_.push_back(std::make_unique<Shard>(job, i, resources));
  SetView(view);
  if (start) GiveStartValues();
}

void ShardCluster::GiveStartValues() {
  for (const Slice& slice : view_.slices()) {
    const TensorSpec& tensor = view_.tensors(static_cast<int>(slice.tensor()));
    const std::string zeros((slice.end() - slice.begin()) * ElementBytes(tensor.dtype()), '\0');
    SliceStart values;
    values.values = zeros;
    Replies replies;
    EXPECT_EQ(shard(slice.shard()).StartSlice(slice.id(), values, now_, replies), absl::OkStatus());
  }
}

void ShardCluster::SetView(const ClusterView& view) {
  view_ = view;
  for (auto& shard : shards_) {
    Replies replies;
    EXPECT_EQ(shard->SetView(view, now_, replies), absl::OkStatus());
  }
}

void ShardCluster::SetViewOf(uint32_t shard, const ClusterView& view) {
  view_ = view;
  Replies replies;
  EXPECT_EQ(shards_[shard]->SetView(view, now_, replies), absl::OkStatus());
}

void ShardCluster::Advance(absl::Duration by) {
  now_ += by;
  for (auto& shard : shards_) {
    Replies replies;
    shard->Tick(now_, replies);
  }
}

PushRequest ShardCluster::MakePush(uint32_t worker, uint64_t step, uint32_t attempt, uint32_t slice,
                                   const std::vector<float>& values) const {
  PushRequest request;
  *request.mutable_header() = this->worker(worker);
  request.set_step(step);
  request.set_attempt(attempt);
  request.set_contributor(worker);
  SliceData& data = *request.add_slices();
  data.set_slice(slice);
  data.set_dtype(F32);
  data.set_data(BytesOf(values));
  return request;
}

absl::StatusOr<PushReply> ShardCluster::Push(const PushRequest& request) {
  const uint32_t slice = request.slices(0).slice();
  return shard(view_.slices(static_cast<int>(slice)).shard()).Push(request);
}

void ShardCluster::PushAll(uint32_t worker, uint64_t step, uint32_t attempt, float value) {
  for (const Slice& slice : view_.slices()) {
    if (view_.tensors(static_cast<int>(slice.tensor())).buffer()) continue;
    auto reply = Push(MakePush(worker, step, attempt, slice.id(),
                               std::vector<float>(slice.end() - slice.begin(), value)));
    ASSERT_EQ(reply.status(), absl::OkStatus());
    EXPECT_EQ(reply->outcomes(0), ADDED);
  }
}

CompleteRequest ShardCluster::MakeComplete(uint32_t worker, uint64_t step, uint32_t attempt,
                                           double weight) const {
  CompleteRequest request;
  *request.mutable_header() = this->worker(worker);
  request.set_step(step);
  request.set_attempt(attempt);
  request.mutable_share()->set_contributor(worker);
  request.mutable_share()->set_weight(weight);
  return request;
}

ShardCluster::CompleteResult ShardCluster::Complete(const CompleteRequest& request,
                                                    absl::Duration patience) {
  auto result = std::make_shared<std::optional<absl::StatusOr<CompleteReply>>>();
  Replies replies;
  leader().Complete(request, {now_, now_ + patience}, replies,
                    [result](absl::StatusOr<CompleteReply> reply) { *result = std::move(reply); });
  return result;
}

ShardCluster::EnterResult ShardCluster::Enter(const CallHeader& header, uint32_t contributor,
                                              absl::Duration patience) {
  auto result = std::make_shared<std::optional<absl::StatusOr<EnterReply>>>();
  EnterRequest request;
  *request.mutable_header() = header;
  request.set_contributor(contributor);
  Replies replies;
  leader().Enter(request, {now_, now_ + patience}, replies,
                 [result](absl::StatusOr<EnterReply> reply) { *result = std::move(reply); });
  return result;
}

ShardCluster::PullResult ShardCluster::Pull(uint32_t worker, uint32_t slice, uint64_t version,
                                            absl::Duration patience) {
  auto result = std::make_shared<std::optional<absl::StatusOr<PulledVersion>>>();
  PullRequest request;
  *request.mutable_header() = this->worker(worker);
  request.set_version(version);
  request.add_slices(slice);
  Replies replies;
  shard(view_.slices(static_cast<int>(slice)).shard())
      .Pull(request, {now_, now_ + patience}, replies,
            [result](absl::StatusOr<PulledVersion> reply) { *result = std::move(reply); });
  return result;
}

std::vector<float> ShardCluster::Values(const std::string& tensor, uint64_t version) {
  std::vector<float> values;
  for (const Slice& slice : view_.slices()) {
    if (view_.tensors(static_cast<int>(slice.tensor())).name() != tensor) continue;
    PullResult result = Pull(0, slice.id(), version);
    if (!result->has_value() || !(*result)->ok()) {
      ADD_FAILURE() << "version " << version << " of " << tensor << ": "
                    << (result->has_value() ? (*result)->status().ToString() : "not there");
      return values;
    }
    const absl::Span<const float> part = (**result)->slices[0].values->as<float>();
    values.insert(values.end(), part.begin(), part.end());
  }
  return values;
}

void ShardCluster::Deliver() {
  for (bool more = true; more;) {
    more = false;
    for (const ToShard& message : leader().TakeOutbox()) {
      more = true;
      Replies replies;
      if (const auto* close = std::get_if<CloseRequest>(&message.request)) {
        auto reply = shard(message.shard).Close(*close);
        ASSERT_EQ(reply.status(), absl::OkStatus());
        leader().OnCloseReply(message.shard, *close, *reply, now_, replies);
      } else if (const auto* advance = std::get_if<AdvanceRequest>(&message.request)) {
        auto reply = shard(message.shard).Advance(*advance, now_, replies);
        ASSERT_EQ(reply.status(), absl::OkStatus());
        leader().OnAdvanceReply(message.shard, *advance, now_, replies);
      } else {
        auto reply =
            shard(message.shard).Decide(std::get<DecideRequest>(message.request), now_, replies);
        ASSERT_EQ(reply.status(), absl::OkStatus());
      }
    }
  }
}

const std::vector<Verdict>& ShardCluster::reported() {
  for (Verdict& verdict : leader().TakeVerdicts()) reported_.push_back(std::move(verdict));
  return reported_;
}

const Verdict& VerdictOf(const ShardCluster::CompleteResult& result) {
  static const Verdict none;
  EXPECT_TRUE(result->has_value()) << "not answered";
  if (!result->has_value()) return none;
  EXPECT_EQ((*result)->status(), absl::OkStatus());
  return (*result)->ok() ? (**result)->verdict() : none;
}

absl::StatusCode CodeOf(const ShardCluster::CompleteResult& result) {
  EXPECT_TRUE(result->has_value()) << "not answered";
  return result->has_value() ? (*result)->status().code() : absl::StatusCode::kOk;
}

PushOutcome OutcomeOf(const absl::StatusOr<PushReply>& reply) {
  EXPECT_EQ(reply.status(), absl::OkStatus());
  return reply.ok() ? reply->outcomes(0) : PUSH_OUTCOME_UNSPECIFIED;
}

}  // namespace parley::testing
