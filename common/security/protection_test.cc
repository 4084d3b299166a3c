#include "common/security/protection.h"

#include <gtest/gtest.h>

namespace parley {
namespace {

TEST(IsLoopback, KnowsThisMachineFromAllOthers) {
  for (const char* here : {"127.0.0.1:0", "127.3.2.1:70", "localhost:1", "[::1]:0"}) {
    EXPECT_TRUE(IsLoopback(here)) << here;
  }
  for (const char* beyond : {"0.0.0.0:0", "[::]:0", "10.0.0.1:5", "node7:5", "127.example.org:5",
                             "localhost.example.org:5", "[::ffff:10.0.0.1]:5", "128.0.0.1:1"}) {
    EXPECT_FALSE(IsLoopback(beyond)) << beyond;
  }
}

TEST(ProtectionFor, IsTlsBeyondThisMachineUnlessTheJobSaysOtherwise) {
  const std::string here = "127.0.0.1:0";
  const std::string beyond = "10.1.2.3:0";
  EXPECT_EQ(ProtectionFor(Tls::AUTO, {here, ""}), Protection::kOpen);
  EXPECT_EQ(ProtectionFor(Tls::AUTO, {here, here}), Protection::kOpen);
  EXPECT_EQ(ProtectionFor(Tls::AUTO, {beyond, ""}), Protection::kTls);
  EXPECT_EQ(ProtectionFor(Tls::AUTO, {here, beyond}), Protection::kTls);
  EXPECT_EQ(ProtectionFor(Tls::AUTO, {beyond, here}), Protection::kTls);
  EXPECT_EQ(ProtectionFor(Tls::ON, {here, here}), Protection::kTls);
  EXPECT_EQ(ProtectionFor(Tls::OFF, {beyond, beyond}), Protection::kToken);
  EXPECT_EQ(ProtectionFor(Tls::OFF, {here, ""}), Protection::kToken);
}

}  // namespace
}  // namespace parley
