#include "worker/device/order_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace parley {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr size_t kA = 0;
constexpr size_t kB = 1;
constexpr size_t kHost = OrderCheck::kHost;

class OrderCheckTest : public ::testing::Test {
 protected:
  OrderCheckTest() {
    check_.Add(all_, "values", true);
    check_.Add({device_, sizeof device_}, "bucket", false);
  }

  std::byte bytes_[64] = {};
  std::byte device_[64] = {};
  const Range all_ = {bytes_, sizeof bytes_};
  OrderCheck check_;
};

TEST_F(OrderCheckTest, OneStreamIsInOrder) {
  check_.Use(kA, "one", {}, {all_});
  check_.Use(kA, "two", {all_}, {});
  check_.Use(kA, "three", {}, {all_});
  EXPECT_THAT(check_.violations(), IsEmpty());
}

TEST_F(OrderCheckTest, ReadingWhatAnotherStreamStillWritesIsFound) {
  check_.Use(kA, "packing", {}, {all_});
  check_.Use(kB, "copying", {all_}, {});
  EXPECT_THAT(check_.violations(),
              ElementsAre("stream [to host], copying, reads [values] which stream [compute], "
                          "packing, still writes"));
}

TEST_F(OrderCheckTest, WritingWhatAnotherStreamStillReadsIsFound) {
  check_.Use(kA, "one", {all_}, {});
  check_.Use(kB, "two", {}, {all_});
  EXPECT_THAT(check_.violations(), ElementsAre(HasSubstr("still reads")));
}

TEST_F(OrderCheckTest, TwoMayReadAtOnceAndOtherBytesAreNobodysConcern) {
  check_.Use(kA, "one", {all_}, {});
  check_.Use(kB, "two", {all_}, {});
  check_.Use(kA, "three", {}, {Range{device_, 32}});
  check_.Use(kB, "four", {}, {Range{device_ + 32, 32}});
  EXPECT_THAT(check_.violations(), IsEmpty());
}

TEST_F(OrderCheckTest, AReaderThatIsNotTheLastOneIsNotForgotten) {
  check_.Use(kA, "first reader", {all_}, {});
  check_.Use(kB, "second reader", {all_}, {});
  check_.Join(2, check_.Record(kB));
  check_.Use(2, "writer", {}, {all_});
  EXPECT_THAT(check_.violations(), ElementsAre(HasSubstr("first reader")));
}

TEST_F(OrderCheckTest, AnEventPutsTwoStreamsInOrderAlsoThroughAThird) {
  check_.Use(kA, "one", {}, {all_});
  check_.Join(kB, check_.Record(kA));
  check_.Join(2, check_.Record(kB));
  check_.Use(2, "two", {all_}, {});
  EXPECT_THAT(check_.violations(), IsEmpty());
}

TEST_F(OrderCheckTest, AnEventSaysNothingOfWhatComesAfterIt) {
  const OrderCheck::Clock event = check_.Record(kA);
  check_.Use(kA, "one", {}, {all_});
  check_.Join(kB, event);
  check_.Use(kB, "two", {all_}, {});
  EXPECT_EQ(check_.violations().size(), 1);
}

TEST_F(OrderCheckTest, TheHostMustWaitForAStreamButNotTheOtherWayRound) {
  check_.Use(kHost, "writing", {}, {all_});
  check_.Use(kA, "copying", {all_}, {});
  EXPECT_THAT(check_.violations(), IsEmpty());
  check_.Use(kHost, "writing again", {}, {all_});
  EXPECT_THAT(check_.violations(), ElementsAre(HasSubstr("the host, writing again, writes")));
}

TEST_F(OrderCheckTest, MemoryThatIsNotThereAndTheDevicesOwnAreFound) {
  check_.Use(kA, "one", {Range{bytes_ + 32, 33}}, {});
  check_.Use(kHost, "reading", {Range{device_, 1}}, {});
  EXPECT_THAT(check_.violations(), ElementsAre(HasSubstr("not given out"), HasSubstr("[bucket]")));
}

TEST_F(OrderCheckTest, FreeingWhatIsInUseIsFound) {
  check_.Use(kA, "copying", {all_}, {});
  check_.Remove(bytes_);
  EXPECT_THAT(check_.violations(), ElementsAre(HasSubstr("freeing")));
}

}  // namespace
}  // namespace parley
