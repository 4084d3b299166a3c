// The session's verbs of a pipeline or node group: the processes behind one contributor, which
// compute a step together.
#include <algorithm>
#include <utility>

#include "client/worker_session.h"

namespace parley {

absl::Status WorkerSession::RegisterPart(std::vector<TensorSpec> tensors,
                                         std::vector<TensorSpec> model, uint64_t training_samples,
                                         uint64_t test_samples) {
  if (options_.job.cluster().stages() == 0) {
    return absl::FailedPreconditionError("RegisterPart: the job has no stages");
  }
  return TakeTensors(std::move(tensors), std::move(model), training_samples, test_samples);
}

std::vector<uint32_t> WorkerSession::ProcessesHere() const {
  const auto& members = view().members();
  const auto role = [this](const Member& member) { return member.role() == options_.role; };
  const auto own = std::find_if(members.begin(), members.end(), [&](const Member& member) {
    return role(member) && member.ordinal() == member_ordinal();
  });
  if (own == members.end()) return {member_ordinal()};
  std::vector<uint32_t> ordinals;
  for (const Member& member : members) {
    if (role(member) && member.host() == own->host()) ordinals.push_back(member.ordinal());
  }
  return ordinals;
}

size_t WorkerSession::local_ordinal() const {
  const std::vector<uint32_t> here = ProcessesHere();
  return std::count_if(here.begin(), here.end(),
                       [this](uint32_t ordinal) { return ordinal < member_ordinal(); });
}

const Contributor* WorkerSession::OwnContributor() const {
  for (const Contributor& contributor : view().contributors()) {
    if (contributor.ordinal() == ordinal()) return &contributor;
  }
  return nullptr;
}

bool WorkerSession::IsWhole() const {
  const Contributor* const own = OwnContributor();
  return own != nullptr &&
         std::count(own->part_members().begin(), own->part_members().end(), uint64_t{0}) == 0;
}

bool WorkerSession::CompositionChanged() const {
  if (shape().parts() == 1 || !layout_.has_value()) return false;
  return !IsWhole() || OwnContributor()->attempt() != pipeline_.composition;
}

bool WorkerSession::GivesInitialValues(const TensorSpec& tensor) const {
  if (tensor.stages().empty()) return layout_->part() == 0;
  return tensor.stages(0) == member_ordinal() % options_.job.cluster().stages();
}

absl::Status WorkerSession::FormGroup() {
  if (reducer_ == nullptr) return absl::OkStatus();
  Reducer::Group group;
  group.job = options_.job.name();
  group.job_epoch = view().job_epoch();
  group.contributor = ordinal();
  group.composition = pipeline_.composition;
  group.rank = pipeline_.part;
  group.members = pipeline_.members;
  group.stands = [newest = newest_, epoch = group.job_epoch, contributor = group.contributor,
                  composition = group.composition] {
    return newest->Stands(epoch, contributor, composition);
  };
  group.ranges.resize(tensors_.size());
  group.values.resize(view().slices_size(), {0, UINT32_MAX});
  for (size_t tensor = 0; tensor < tensors_.size(); ++tensor) {
    for (const SliceLayout::PartSlice& one : layout_->parts(tensor)) {
      group.values[one.slice.slice] = {one.slice.bytes, one.part};
      if (tensors_[tensor].buffer()) continue;
      group.ranges[tensor].push_back({one.slice.begin, one.slice.bytes, one.part});
    }
  }
  return reducer_->Form(std::move(group), exchange_->listener());
}

Session::Pipeline WorkerSession::ViewedPipeline() const {
  Pipeline pipeline;
  const Contributor* const own = OwnContributor();
  if (own == nullptr || own->part_members_size() < 2) return pipeline;
  pipeline.composition = own->attempt();
  if (layout_.has_value()) pipeline.part = layout_->part();
  for (const uint64_t id : own->part_members()) {
    const auto member = std::find_if(view().members().begin(), view().members().end(),
                                     [id](const Member& one) { return one.id() == id; });
    pipeline.members.push_back(member == view().members().end() ? Member() : *member);
  }
  return pipeline;
}

absl::Status WorkerSession::AwaitPeers(const std::string& what, const std::function<bool()>& done) {
  bool came = false;
  const auto finished = [this] { return watched().phase() == FINISHED; };
  const absl::Status status = Await(what, [&] {
    came = done();
    return came || CompositionChanged() || finished();
  });
  if (!status.ok()) return status;
  if (CompositionChanged()) {
    return absl::AbortedError(
        "another process has, or is to have, a place in the pipeline or node group");
  }
  return came ? status : absl::OutOfRangeError("the job has finished");
}

void WorkerSession::Wake() {
  std::shared_ptr<AnswerQueue> queue;
  {
    absl::MutexLock lock(&wake_mu_);
    queue = woken_;
  }
  queue->Post([] {});
}

absl::StatusOr<Verdict> WorkerSession::Abandon(const absl::Status& why) {
  Verdict stale;
  if (plan_.has_value()) stale.set_step(plan_->step);
  stale.set_outcome(Verdict::STALE);
  if (absl::Status status = FollowJob(why); !status.ok()) return status;
  return stale;
}

absl::Status WorkerSession::FollowJob(absl::Status error) {
  if (!*is_expelled_ && !JobWentBack() && !membership()->failure().has_value() &&
      CompositionChanged()) {
    return BeginAnew();
  }
  return HasLostTrack(error) ? BeginAnew() : error;
}

absl::Status WorkerSession::PullVersion(uint64_t version) {
  if (!puller_.has_value()) {
    return absl::FailedPreconditionError("PullVersion: Register comes first");
  }
  return PullValues({.version = version});
}

}  // namespace parley
