#include "client/reduce/given_sums.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace parley {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Takes down what it is asked.
class Values final : public Reducer {
 public:
  absl::Status Form(Group group, Listener* listener) override {
    formed = std::move(group);
    told = listener;
    return answer;
  }
  void Open(uint64_t step, double) override { calls.push_back(absl::StrCat("open ", step)); }
  void Offer(size_t) override { calls.emplace_back("offer"); }
  void Close() override { calls.emplace_back("close"); }
  bool done() const override { return true; }
  std::string Missing() const override { return ""; }
  void Share(const struct Reducer::Values&, absl::Span<const std::byte>) override {}
  void Withhold(const struct Reducer::Values&) override {}
  Taken Take(const struct Reducer::Values&, absl::Span<std::byte>) override {
    return Taken::kTaken;
  }
  void Watch(std::optional<uint32_t>) override {}
  void Abort() override { calls.emplace_back("abort"); }

  absl::Status answer;
  Group formed;
  Listener* told = nullptr;
  std::vector<std::string> calls;
};

class Heard final : public Reducer::Listener {
 public:
  void OnReduced(size_t tensor, bool any) override {
    said.push_back(absl::StrCat(tensor, any ? " any" : " none"));
  }
  void OnAllReduced() override { said.emplace_back("all"); }
  void OnShared() override { said.emplace_back("shared"); }
  void OnBroken(const absl::Status& why) override { said.emplace_back(why.message()); }
  std::vector<std::string> said;
};

class GivenSumsTest : public ::testing::Test {
 protected:
  GivenSumsTest() : values_(new Values), sums_(std::unique_ptr<Reducer>(values_)) {}

  // Tensor 1 is a buffer.
  absl::Status Form() {
    Reducer::Group group;
    group.composition = 7;
    group.ranges = {{{0, 8, 0}, {8, 8, 1}}, {}, {{0, 4, 1}}};
    return sums_.Form(group, &heard_);
  }

  Values* const values_;
  GivenSums sums_;
  Heard heard_;
};

TEST_F(GivenSumsTest, IsDoneWhenEachTensorsSumWasGiven) {
  EXPECT_EQ(sums_.group(), nullptr);
  ASSERT_TRUE(Form().ok());
  EXPECT_EQ(sums_.group()->composition, 7u);
  EXPECT_EQ(sums_.group()->ranges[0].size(), 2u);
  sums_.Open(1, 0.5);
  EXPECT_EQ(sums_.weight(), 0.5);
  EXPECT_FALSE(sums_.done());
  sums_.Given(2, true);
  sums_.Given(2, true);
  sums_.Given(1, true);
  EXPECT_FALSE(sums_.done());
  EXPECT_NE(sums_.Missing(), "");
  sums_.Given(0, false);
  EXPECT_TRUE(sums_.done());
  EXPECT_EQ(sums_.Missing(), "");
  EXPECT_THAT(heard_.said, ElementsAre("2 any", "0 none", "all"));
  sums_.Open(2, 1);
  EXPECT_FALSE(sums_.done());
}

TEST_F(GivenSumsTest, TheOtherReducerHandsRoundValuesAndGetsNoGradients) {
  ASSERT_TRUE(Form().ok());
  EXPECT_EQ(values_->formed.composition, 7u);
  EXPECT_THAT(values_->formed.ranges, ElementsAre(IsEmpty(), IsEmpty(), IsEmpty()));
  values_->calls.clear();
  sums_.Open(3, 1);
  sums_.Offer(0);
  sums_.Close();
  EXPECT_THAT(values_->calls, ElementsAre("open 3", "close"));
  values_->told->OnReduced(0, true);
  values_->told->OnAllReduced();
  values_->told->OnShared();
  values_->told->OnBroken(absl::AbortedError("broken"));
  EXPECT_THAT(heard_.said, ElementsAre("shared", "broken"));
  EXPECT_FALSE(sums_.done());
}

TEST_F(GivenSumsTest, AfterAnAbortNobodyIsToldAnything) {
  ASSERT_TRUE(Form().ok());
  sums_.Open(1, 1);
  sums_.Abort();
  EXPECT_EQ(sums_.group(), nullptr);
  sums_.Given(0, true);
  EXPECT_THAT(heard_.said, IsEmpty());
  values_->answer = absl::ResourceExhaustedError("no memory");
  EXPECT_EQ(Form(), values_->answer);
  EXPECT_EQ(sums_.group(), nullptr);
}

}  // namespace
}  // namespace parley
