#include "server/coordinator/view.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/job/consistency.h"
#include "common/job/contributor_places.h"
#include "common/job/data_division.h"
#include "server/coordinator/model_registry.h"
#include "server/coordinator/placement.h"
#include "server/coordinator/slice_ranks.h"

namespace parley {
namespace {

std::vector<SampleRange> Ranges(const DataPosition& position) {
  return {position.used().begin(), position.used().end()};
}

// Each contributor sends the whole slice as these parts.
void AddParts(const ClusterView& view, const std::vector<uint32_t>& parts, Slice& slice) {
  for (const Contributor& contributor : view.contributors()) {
    for (const uint32_t number : parts) {
      SlicePart* part = slice.add_parts();
      part->set_contributor(contributor.ordinal());
      part->set_part(number);
      part->set_begin(slice.begin());
      part->set_end(slice.end());
    }
  }
}

// The stages that have the tensor.
std::vector<uint32_t> StageParts(const TensorSpec& tensor) {
  std::vector<uint32_t> parts;
  for (const uint32_t stage : tensor.stages()) {
    parts.push_back(1 + stage);
    // Gradients are added; a buffer has one value.
    if (tensor.buffer()) break;
  }
  return parts;
}

// Of the workers that there are: while they gathered, their number may have changed.
std::set<uint32_t> Contributors(const std::vector<Member>& members, const ContributorShape& shape) {
  std::set<uint32_t> ordinals;
  for (const Member& member : members) {
    if (member.role() != WORKER) continue;
    ordinals.insert(PartPlaceOf(WORKER, member.ordinal(), shape).contributor);
  }
  return ordinals;
}

uint64_t DivideUp(uint64_t a, uint64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

}  // namespace

absl::Status CheckStart(const StartPoint& start, const RegisterModelRequest& model,
                        size_t most_listed) {
  const std::string what = absl::StrCat("cannot start from the checkpoint ", start.folder, ": ");
  const std::vector<TensorSpec> here(model.tensors().begin(), model.tensors().end());
  if (start.weights) return CheckWeights(*start.weights, here, most_listed);
  const std::vector<TensorSpec> there(start.manifest.tensors().begin(),
                                      start.manifest.tensors().end());
  if (auto difference = Difference(here, there)) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, *difference, " ('here': this job's model, 'there': the checkpoint)"));
  }
  const std::vector<SampleRange> used = Ranges(start.manifest.data_position());
  for (const SampleRange& range : used) {
    if (range.begin() >= range.end() || range.end() > model.training_samples()) {
      return absl::InvalidArgumentError(absl::StrCat(
          what, "it has used sample ", range.end(), " of a data epoch, the training set has ",
          model.training_samples(), "; is it another data set?"));
    }
  }
  return absl::OkStatus();
}

uint64_t LastStep(const JobConfig& job, const DataPosition& position, uint64_t version,
                  uint64_t training_samples, uint32_t contributors) {
  if (job.has_steps()) return StepsAskedFor(job);
  // In bounded and async each contribution is a step of its own.
  const uint64_t full = NominalSamples(job) * (IsClocked(job) ? 1 : contributors);
  if (full == 0 || position.epoch() >= job.epochs()) return version;
  const uint64_t used = Count(Ranges(position));
  const uint64_t rest_of_epoch = training_samples > used ? training_samples - used : 0;
  uint64_t steps = 0;
  if (__builtin_mul_overflow(job.epochs() - position.epoch() - 1, DivideUp(training_samples, full),
                             &steps) ||
      __builtin_add_overflow(steps, DivideUp(rest_of_epoch, full), &steps) ||
      __builtin_add_overflow(steps, version, &steps)) {
    return std::numeric_limits<uint64_t>::max();
  }
  return steps;
}

absl::StatusOr<ClusterView> MakeView(const JobConfig& job, const std::vector<Member>& members,
                                     const RegisterModelRequest& model, const StartPoint* start,
                                     uint64_t job_epoch) {
  const std::vector<TensorSpec> tensors(model.tensors().begin(), model.tensors().end());
  auto slices = Place(tensors, job.cluster().shards());
  if (!slices.ok()) return slices.status();

  const ContributorShape shape = ShapeOf(job.cluster());
  ClusterView view;
  view.set_job_epoch(job_epoch);
  view.set_view_epoch(1);
  if (start != nullptr) {
    view.set_start_from(start->folder);
    view.set_start_version(start->manifest.step());
    *view.mutable_data_position() = start->manifest.data_position();
  } else {
    view.mutable_data_position();
  }
  view.set_first_step(view.start_version() + 1);
  for (const Member& member : members) {
    *view.add_members() = member;
  }
  for (const uint32_t ordinal : Contributors(members, shape)) {
    Contributor* contributor = view.add_contributors();
    contributor->set_ordinal(ordinal);
    contributor->mutable_part_members()->Resize(static_cast<int>(shape.parts()), 0);
    contributor->set_attempt(static_cast<uint32_t>(view.view_epoch()));
  }
  for (const Member& member : members) {
    if (member.role() == SHARD) continue;
    const ContributorPart place = PartPlaceOf(member.role(), member.ordinal(), shape);
    const auto contributor =
        std::find_if(view.mutable_contributors()->begin(), view.mutable_contributors()->end(),
                     [&](const Contributor& one) { return one.ordinal() == place.contributor; });
    if (contributor == view.mutable_contributors()->end()) continue;  // a stage without its worker
    contributor->set_part_members(static_cast<int>(place.part), member.id());
  }
  for (const TensorSpec& tensor : tensors) *view.add_tensors() = tensor;
  const std::vector<uint32_t> ranks = SliceRanks(tensors, *slices, shape.group);
  for (size_t i = 0; i < slices->size(); ++i) {
    Slice& slice = (*slices)[i];
    if (shape.group > 1) {
      AddParts(view, {ranks[i]}, slice);
    } else {
      AddParts(view, StageParts(tensors[slice.tensor()]), slice);
    }
    *view.add_slices() = std::move(slice);
  }
  view.set_step_leader(0);
  view.set_training_samples(model.training_samples());
  view.set_test_samples(model.test_samples());
  const auto workers = std::count_if(members.begin(), members.end(),
                                     [](const Member& member) { return member.role() == WORKER; });
  view.set_total_steps(LastStep(job, view.data_position(), view.start_version(),
                                model.training_samples(),
                                LeastCounted(job, static_cast<uint32_t>(workers))));
  return view;
}

}  // namespace parley
