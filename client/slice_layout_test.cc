#include "client/slice_layout.h"

#include <gtest/gtest.h>

namespace parley {
namespace {

TensorSpec Spec(const std::string& name, DataType dtype, int64_t size) {
  TensorSpec spec;
  spec.set_name(name);
  spec.set_dtype(dtype);
  spec.add_shape(size);
  return spec;
}

void AddSlice(ClusterView& view, uint32_t tensor, uint64_t begin, uint64_t end, uint32_t shard) {
  Slice* slice = view.add_slices();
  slice->set_id(view.slices_size() - 1);
  slice->set_tensor(tensor);
  slice->set_begin(begin);
  slice->set_end(end);
  slice->set_shard(shard);
}

// Two shards; `big` cut in two, `small` (a buffer of another type) whole. In the view they come in
// another order than they were registered.
class SliceLayoutTest : public testing::Test {
 protected:
  SliceLayoutTest() {
    tensors_ = {Spec("small", I64, 5), Spec("big", F32, 100'000)};
    tensors_[0].set_buffer(true);
    *view_.add_tensors() = tensors_[1];
    *view_.add_tensors() = tensors_[0];
    for (uint32_t shard = 0; shard < 2; ++shard) {
      Member* member = view_.add_members();
      member->set_role(SHARD);
      member->set_ordinal(shard);
      member->set_address("h:1" + std::to_string(shard));
    }
    AddSlice(view_, 0, 0, 65'536, 0);
    AddSlice(view_, 0, 65'536, 100'000, 1);
    AddSlice(view_, 1, 0, 5, 1);
  }

  absl::Status Make() const { return SliceLayout::Make(view_, tensors_, 0, 9).status(); }

  ClusterView view_;
  std::vector<TensorSpec> tensors_;
};

TEST_F(SliceLayoutTest, PlacesRegisteredTensorsInBytes) {
  auto layout = SliceLayout::Make(view_, tensors_, 0, 9);
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(layout->shard_addresses(), (std::vector<std::string>{"h:10", "h:11"}));
  ASSERT_EQ(layout->pushes(1).size(), 2);
  EXPECT_EQ(layout->pushes(1)[1].begin, 65'536 * 4);
  EXPECT_EQ(layout->pushes(1)[1].bytes, (100'000 - 65'536) * 4);
  EXPECT_EQ(layout->pushes(1)[1].shard, 1);
  ASSERT_EQ(layout->pushes(0).size(), 1);
  EXPECT_EQ(layout->pushes(0)[0].bytes, 40);
  EXPECT_EQ(layout->pushes(0)[0].slice, 2);
  EXPECT_EQ(layout->by_shard()[0].size(), 1);
  EXPECT_EQ(layout->by_shard()[1].size(), 2);
  EXPECT_EQ(layout->part(), 0);
}

TEST_F(SliceLayoutTest, AMemberPushesItsPartsOnly) {
  Contributor* contributor = view_.add_contributors();
  contributor->add_part_members(8);
  contributor->add_part_members(9);
  for (uint32_t part = 0; part < 2; ++part) {
    SlicePart* range = view_.mutable_slices(0)->add_parts();
    range->set_part(part);
    range->set_begin(part * 30'000);
    range->set_end(part == 0 ? 30'000 : 65'536);
  }
  auto layout = SliceLayout::Make(view_, tensors_, 0, 9);
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(layout->part(), 1);
  ASSERT_EQ(layout->pushes(1).size(), 1);
  EXPECT_EQ(layout->pushes(1)[0].begin, 30'000 * 4);
  EXPECT_TRUE(layout->pushes(0).empty());
}

TEST_F(SliceLayoutTest, KnowsWhatEachRankOfANodeGroupPushes) {
  Contributor* group = view_.add_contributors();
  for (const uint64_t member : {8, 9}) group->add_part_members(member);
  for (Slice& slice : *view_.mutable_slices()) {
    for (const uint32_t contributor : {0, 1}) {
      SlicePart* part = slice.add_parts();
      part->set_contributor(contributor);
      part->set_part(slice.id() == 1 ? 1 : 0);
      part->set_begin(slice.begin());
      part->set_end(slice.end());
    }
  }
  const auto layout = SliceLayout::Make(view_, tensors_, 0, 9);
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(layout->part(), 1u);
  ASSERT_EQ(layout->pushes(1).size(), 1u);
  EXPECT_EQ(layout->pushes(1)[0].slice, 1u);
  EXPECT_TRUE(layout->pushes(0).empty());
  ASSERT_EQ(layout->parts(1).size(), 2u);
  for (const uint32_t rank : {0, 1}) {
    EXPECT_EQ(layout->parts(1)[rank].part, rank);
    EXPECT_EQ(layout->parts(1)[rank].slice.slice, rank);
  }
  EXPECT_EQ(layout->by_shard()[1].size(), 2u) << "it pulls all";
}

TEST_F(SliceLayoutTest, RefusesAViewOfAnotherModel) {
  EXPECT_TRUE(Make().ok());
  {
    const ClusterView good = view_;
    view_.mutable_slices(1)->set_begin(65'535);
    EXPECT_FALSE(Make().ok()) << "overlap";
    view_ = good;
    view_.mutable_slices()->RemoveLast();
    EXPECT_FALSE(Make().ok()) << "a tensor without slices";
    view_ = good;
    view_.mutable_slices(2)->set_shard(7);
    EXPECT_FALSE(Make().ok()) << "no such shard";
    view_ = good;
    view_.mutable_slices(1)->set_id(3);
    EXPECT_FALSE(Make().ok()) << "an id beyond the slices";
    view_ = good;
    view_.mutable_slices(1)->set_id(UINT32_MAX);
    EXPECT_FALSE(Make().ok()) << "the highest id";
    view_ = good;
    view_.mutable_slices(1)->set_id(0);
    EXPECT_FALSE(Make().ok()) << "an id twice";
    view_ = good;
    view_.mutable_members(1)->set_ordinal(2);
    view_.mutable_slices(1)->set_shard(2);
    view_.mutable_slices(2)->set_shard(2);
    EXPECT_FALSE(Make().ok()) << "no shard 1, but shard 2";
    view_ = good;
    view_.mutable_slices(0)->set_shard(1);
    view_.mutable_members(0)->clear_address();
    EXPECT_FALSE(Make().ok()) << "a shard without an address";
    view_ = good;
    view_.mutable_slices(2)->set_tensor(7);
    EXPECT_FALSE(Make().ok()) << "no such tensor";
    view_ = good;
    view_.mutable_tensors(0)->set_dtype(F64);
    EXPECT_FALSE(Make().ok()) << "another type";
    view_ = good;
    view_.mutable_tensors(0)->set_name("other");
    EXPECT_FALSE(Make().ok()) << "another name";
    view_ = good;
    view_.mutable_tensors()->RemoveLast();
    view_.mutable_slices()->RemoveLast();
    EXPECT_FALSE(Make().ok()) << "one tensor less";
  }
}

}  // namespace
}  // namespace parley
