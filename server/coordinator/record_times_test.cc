#include "server/coordinator/record_times.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace parley {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1'795'000'000);
constexpr absl::Duration kGrace = absl::Seconds(90);

int64_t Micros(absl::Time time) { return absl::ToUnixMicros(time); }

// Somebody was lost a minute ago, and somebody else told to end half a minute ago.
CoordinatorState State() {
  CoordinatorState state;
  LoggedVacancy& vacancy = *state.add_vacancies();
  vacancy.set_heard_unix_micros(Micros(kNow - absl::Seconds(60)));
  vacancy.set_since_unix_micros(Micros(kNow - absl::Seconds(50)));
  state.mutable_progress()->set_started_unix_micros(Micros(kNow - absl::Seconds(600)));
  state.mutable_preemption()->set_end_unix_micros(Micros(kNow + kGrace - absl::Seconds(30)));
  state.mutable_preemption()->set_micros(absl::ToInt64Microseconds(kGrace));
  return state;
}

// The clock was set between the process's start and the record, and set right before the next one.
TEST(RecordTimes, ARecordIsByTheWallClock) {
  for (const absl::Duration ahead : {absl::Hours(1), -absl::Hours(1), absl::ZeroDuration()}) {
    const CoordinatorState record = ToRecordTimes(State(), ahead);
    EXPECT_EQ(record.vacancies(0).heard_unix_micros(), Micros(kNow - absl::Seconds(60) + ahead));
    EXPECT_EQ(record.preemption().end_unix_micros(),
              Micros(kNow + kGrace - absl::Seconds(30) + ahead));
    EXPECT_EQ(record.progress().stopped_unix_micros(), 0) << "has not stopped";
    EXPECT_EQ(FromRecordTimes(record, ahead, kNow).SerializeAsString(),
              State().SerializeAsString());
    // Another process began later, by the clock as it is set by then.
    const absl::Time later = kNow + ahead + absl::Seconds(5);
    const CoordinatorState read = FromRecordTimes(record, absl::ZeroDuration(), later);
    EXPECT_EQ(read.vacancies(0).since_unix_micros(), Micros(later - absl::Seconds(55)));
    EXPECT_EQ(read.progress().started_unix_micros(), Micros(later - absl::Seconds(605)));
    EXPECT_EQ(read.preemption().end_unix_micros(), Micros(later + kGrace - absl::Seconds(35)));
  }
}

TEST(RecordTimes, NothingIsPutOffByAClockThatWasSetBackInBetween) {
  const absl::Time now = kNow - absl::Hours(1);
  const CoordinatorState read = FromRecordTimes(State(), absl::ZeroDuration(), now);
  EXPECT_EQ(read.vacancies(0).heard_unix_micros(), Micros(now));
  EXPECT_EQ(read.vacancies(0).since_unix_micros(), Micros(now));
  EXPECT_EQ(read.progress().started_unix_micros(), Micros(now));
  EXPECT_EQ(read.preemption().end_unix_micros(), Micros(now + kGrace));
}

TEST(RecordTimes, NoTimeIsTooFarAway) {
  CoordinatorState state = State();
  state.mutable_vacancies(0)->set_since_unix_micros(std::numeric_limits<int64_t>::max());
  state.mutable_vacancies(0)->set_heard_unix_micros(std::numeric_limits<int64_t>::min());
  (void)ToRecordTimes(state, absl::Hours(1));
  const CoordinatorState read = FromRecordTimes(state, absl::Hours(1), kNow);
  EXPECT_EQ(read.vacancies(0).since_unix_micros(), Micros(kNow));
}

}  // namespace
}  // namespace parley
