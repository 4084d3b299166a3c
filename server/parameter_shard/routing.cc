#include "server/parameter_shard/routing.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "common/describe_member.h"
#include "common/tensor.h"

namespace parley {
namespace {

std::string SliceName(const ClusterView& view, const Slice& slice) {
  return absl::StrCat(view.tensors(static_cast<int>(slice.tensor())).name(), "@", slice.begin(),
                      ":", slice.end());
}

bool PartOrder(const PartRange& a, const PartRange& b) {
  return std::tie(a.contributor, a.part) < std::tie(b.contributor, b.part);
}

}  // namespace

std::string MemberLabel(const Member& member) {
  const char* role = "member";
  switch (member.role()) {
    case COORDINATOR:
      return "coordinator";
    case SHARD:
      role = "shard";
      break;
    case STAGE:
      role = "stage";
      break;
    case WORKER:
      role = "worker";
      break;
    case OPERATOR:
      role = "operator";
      break;
    default:
      break;
  }
  return absl::StrCat(role, "-", member.ordinal());
}

absl::StatusOr<std::shared_ptr<const Routing>> Routing::Make(ClusterView view, uint32_t shard) {
  std::shared_ptr<Routing> routing(new Routing(std::move(view), shard));
  if (absl::Status status = routing->Index(); !status.ok()) return status;
  return std::shared_ptr<const Routing>(std::move(routing));
}

absl::Status Routing::Index() {
  const auto bad = [this](auto... what) {
    return absl::InvalidArgumentError(
        absl::StrCat("view ", view_.view_epoch(), " is not valid: ", what...));
  };
  for (const Member& member : view_.members()) {
    members_[member.id()] = &member;
    if (member.role() == SHARD) shards_[member.ordinal()] = &member;
  }
  if (FindShard(shard_) == nullptr) return bad("it does not have shard ", shard_);
  if (FindShard(view_.step_leader()) == nullptr) {
    return bad("its step leader, shard ", view_.step_leader(), ", is not a member");
  }
  for (const Contributor& contributor : view_.contributors()) {
    if (!contributors_.emplace(contributor.ordinal(), &contributor).second) {
      return bad("contributor ", contributor.ordinal(), " is there twice");
    }
    if (contributor.part_members().empty()) {
      return bad("contributor ", contributor.ordinal(), " has no part");
    }
    for (uint64_t id : contributor.part_members()) {
      if (id != 0 && FindMember(id) == nullptr) {
        return bad("contributor ", contributor.ordinal(), " has member ", id,
                   ", which is not in the view");
      }
    }
  }
  for (const TensorSpec& tensor : view_.tensors()) {
    if (ElementBytes(tensor.dtype()) == 0) return bad(tensor.name(), " has no element type");
    if (!tensor.buffer() && !IsTrainable(tensor.dtype())) {
      return bad(tensor.name(), " is ", std::string(DataTypeName(tensor.dtype())),
                 ": trained tensors are F32 or F64");
    }
  }
  for (int i = 0; i < view_.slices_size(); ++i) {
    const Slice& slice = view_.slices(i);
    if (slice.id() != static_cast<uint32_t>(i)) return bad("slice ", i, " has id ", slice.id());
    if (absl::Status status = IndexSlice(slice); !status.ok()) return bad(status.message());
  }
  return absl::OkStatus();
}

absl::Status Routing::IndexSlice(const Slice& slice) {
  if (slice.tensor() >= static_cast<uint32_t>(view_.tensors_size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("slice ", slice.id(), " is of no tensor of the view"));
  }
  const uint64_t count = ElementCount(view_.tensors(static_cast<int>(slice.tensor())));
  if (slice.begin() > slice.end() || slice.end() > count || slice.begin() % kBlockElements != 0 ||
      (slice.begin() == slice.end() && count != 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "slice ", SliceName(view_, slice), " does not fit a tensor of ", count, " elements"));
  }
  if (FindShard(slice.shard()) == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("slice ", SliceName(view_, slice),
                                                   " lies on shard ", slice.shard(),
                                                   ", which is not a member"));
  }
  if (slice.shard() != shard_) return absl::OkStatus();

  std::vector<PartRange>& parts = parts_[slice.id()];
  if (slice.parts().empty()) {
    for (const auto& [ordinal, contributor] : contributors_) {
      parts.push_back({ordinal, 0, 0, slice.end() - slice.begin()});
    }
  }
  for (const SlicePart& part : slice.parts()) {
    const Contributor* const contributor = FindContributor(part.contributor());
    if (contributor == nullptr ||
        part.part() >= static_cast<uint32_t>(contributor->part_members_size()) ||
        part.begin() < slice.begin() || part.end() > slice.end() || part.begin() >= part.end()) {
      return absl::InvalidArgumentError(absl::StrCat("part ", part.part(), " of contributor ",
                                                     part.contributor(), " does not fit slice ",
                                                     SliceName(view_, slice)));
    }
    parts.push_back({part.contributor(), part.part(), part.begin() - slice.begin(),
                     part.end() - slice.begin()});
  }
  std::sort(parts.begin(), parts.end(), PartOrder);
  const auto same = [](const PartRange& a, const PartRange& b) {
    return a.contributor == b.contributor && a.part == b.part;
  };
  if (std::adjacent_find(parts.begin(), parts.end(), same) != parts.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("slice ", SliceName(view_, slice), " names a part twice"));
  }
  own_slices_.push_back(slice.id());
  return absl::OkStatus();
}

const Member* Routing::FindMember(uint64_t id) const {
  const auto it = members_.find(id);
  return it == members_.end() ? nullptr : it->second;
}

const Member* Routing::FindShard(uint32_t ordinal) const {
  const auto it = shards_.find(ordinal);
  return it == shards_.end() ? nullptr : it->second;
}

const Contributor* Routing::FindContributor(uint32_t ordinal) const {
  const auto it = contributors_.find(ordinal);
  return it == contributors_.end() ? nullptr : it->second;
}

std::vector<uint32_t> Routing::Contributors() const {
  std::vector<uint32_t> ordinals;
  for (const auto& [ordinal, contributor] : contributors_) ordinals.push_back(ordinal);
  return ordinals;
}

uint64_t Routing::SenderOf(uint32_t contributor, uint32_t part) const {
  const Contributor* found = FindContributor(contributor);
  if (found == nullptr || part >= static_cast<uint32_t>(found->part_members_size())) return 0;
  return found->part_members(static_cast<int>(part));
}

absl::Span<const PartRange> Routing::PartsOf(uint32_t own_slice) const {
  const auto it = parts_.find(own_slice);
  if (it == parts_.end()) return {};
  return it->second;
}

const PartRange* Routing::FindPart(uint32_t own_slice, uint32_t contributor, uint32_t part) const {
  const absl::Span<const PartRange> parts = PartsOf(own_slice);
  const auto it =
      std::lower_bound(parts.begin(), parts.end(), PartRange{contributor, part, 0, 0}, PartOrder);
  if (it == parts.end() || it->contributor != contributor || it->part != part) return nullptr;
  return &*it;
}

bool Routing::SamePlacement(const Routing& other) const {
  if (view_.tensors_size() != other.view_.tensors_size()) return false;
  if (view_.slices_size() != other.view_.slices_size()) return false;
  for (int i = 0; i < view_.tensors_size(); ++i) {
    if (view_.tensors(i).SerializeAsString() != other.view_.tensors(i).SerializeAsString()) {
      return false;
    }
  }
  for (int i = 0; i < view_.slices_size(); ++i) {
    const Slice& a = view_.slices(i);
    const Slice& b = other.view_.slices(i);
    if (std::make_tuple(a.tensor(), a.begin(), a.end(), a.shard()) !=
        std::make_tuple(b.tensor(), b.begin(), b.end(), b.shard())) {
      return false;
    }
  }
  return true;
}

std::string Routing::DescribeSender(uint32_t contributor, uint32_t part) const {
  const uint64_t sender = SenderOf(contributor, part);
  if (sender != 0) return Describe(sender);
  if (part == 0) return absl::StrCat("contributor ", contributor, " (nobody has its place)");
  return absl::StrCat("part ", part, " of contributor ", contributor, " (nobody has its place)");
}

std::string Routing::Describe(uint64_t member) const {
  const Member* found = FindMember(member);
  if (found == nullptr) return absl::StrCat("member ", member);
  return parley::Describe(*found);
}

}  // namespace parley
