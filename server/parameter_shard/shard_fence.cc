// Shard: who may call, and what.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/parameter_shard/shard.h"

namespace parley {

absl::Status Shard::FenceMember(const CallHeader& header) const {
  if (stopped_) return absl::UnavailableError(absl::StrCat("shard ", ordinal_, " has ended"));
  if (header.job() != job_.name()) {
    return absl::NotFoundError(
        absl::StrCat("this shard serves job '", job_.name(), "', not '", header.job(), "'"));
  }
  if (routing_ == nullptr) {
    return absl::UnavailableError(absl::StrCat("shard ", ordinal_, " has no view yet"));
  }
  const ClusterView& view = routing_->view();
  const Member* member = routing_->FindMember(header.member());
  if (member == nullptr) {
    if (header.view_epoch() > view.view_epoch()) {
      return absl::FailedPreconditionError(absl::StrCat("shard ", ordinal_, " has view ",
                                                        view.view_epoch(), ", the caller has ",
                                                        header.view_epoch(), ": try again"));
    }
    return absl::AbortedError(absl::StrCat("member ", header.member(), " is not in view ",
                                           view.view_epoch(), ": rejoin"));
  }
  if (member->incarnation() != header.incarnation()) {
    return absl::AbortedError(absl::StrCat("another incarnation of ", MemberLabel(*member),
                                           " has taken its place (now at ", member->address(),
                                           ", pid ", member->pid(), ")"));
  }
  return absl::OkStatus();
}

absl::Status Shard::Fence(const CallHeader& header) const {
  if (cause_.has_value() || error_.has_value()) return Failed();
  if (absl::Status status = FenceMember(header); !status.ok()) return status;
  const ClusterView& view = routing_->view();
  if (header.job_epoch() < view.job_epoch()) {
    return absl::AbortedError(absl::StrCat("the job has been rolled back to step ",
                                           view.start_version(), " (job epoch ", view.job_epoch(),
                                           ", the caller has ", header.job_epoch(), ")"));
  }
  if (header.job_epoch() > view.job_epoch() || header.view_epoch() > view.view_epoch()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "shard ", ordinal_, " has job epoch ", view.job_epoch(), " and view ", view.view_epoch(),
        ", the caller has ", header.job_epoch(), " and ", header.view_epoch(), ": try again"));
  }
  return absl::OkStatus();
}

absl::Status Shard::FenceLeader(const CallHeader& header) const {
  if (absl::Status status = Fence(header); !status.ok()) return status;
  const Member* leader = routing_->FindShard(routing_->view().step_leader());
  if (leader->id() == header.member()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(routing_->Describe(header.member()),
                                                 " is not the step leader, ", MemberLabel(*leader),
                                                 " is"));
}

absl::Status Shard::NotLeader() const {
  return absl::InvalidArgumentError(absl::StrCat("shard ", ordinal_,
                                                 " is not the step leader, shard ",
                                                 routing_->view().step_leader(), " is"));
}

absl::Status Shard::FencePart(const CallHeader& header, uint32_t contributor, uint32_t part) const {
  if (routing_->SenderOf(contributor, part) == header.member()) return absl::OkStatus();
  std::string what = absl::StrCat("part ", part, " of contributor ", contributor,
                                  " is not sent by ", routing_->Describe(header.member()));
  if (header.view_epoch() < routing_->view().view_epoch()) {
    return absl::FailedPreconditionError(
        absl::StrCat(what, " since view ", routing_->view().view_epoch()));
  }
  return absl::InvalidArgumentError(what);
}

absl::Status Shard::FenceContributor(const CallHeader& header, uint32_t contributor) const {
  const Contributor* const found = routing_->FindContributor(contributor);
  if (found != nullptr && std::count(found->part_members().begin(), found->part_members().end(),
                                     header.member()) != 0) {
    return absl::OkStatus();
  }
  return FencePart(header, contributor, 0);
}

absl::Status Shard::FenceComposition(uint32_t contributor, uint64_t composition) const {
  const Contributor* const found = routing_->FindContributor(contributor);
  if (found == nullptr || found->part_members_size() < 2 || composition >= found->attempt()) {
    return absl::OkStatus();
  }
  return absl::AbortedError(absl::StrCat("a process behind contributor ", contributor,
                                         " has lost its place since this step was begun"));
}

absl::Status Shard::WrongSlice(const CallHeader& header, uint32_t slice) const {
  const ClusterView& view = routing_->view();
  if (slice >= static_cast<uint32_t>(view.slices_size())) {
    return absl::InvalidArgumentError(absl::StrCat("there is no slice ", slice));
  }
  std::string what = absl::StrCat("slice ", slice, " lies on shard ",
                                  routing_->slice(slice).shard(), ", not on shard ", ordinal_);
  if (header.view_epoch() < view.view_epoch()) return absl::FailedPreconditionError(what);
  return absl::InvalidArgumentError(what);
}

}  // namespace parley
