#include "client/parley/doctor/findings_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace parley {
namespace {

Findings Three() {
  return {Fine("clock", "synchronised"), Warning("cores", "2 usable", "fewer threads"),
          Failure("listen port", "10.0.0.7 port 80 is in use", "another one")};
}

TEST(FindingsText, HasALineForEachAndWhatToDoBelow) {
  EXPECT_EQ(FindingsText(Three()),
            "ok    clock                   synchronised\n"
            "warn  cores                   2 usable\n"
            "                              -> fewer threads\n"
            "FAIL  listen port             10.0.0.7 port 80 is in use\n"
            "                              -> another one\n"
            "\n3 checks: 1 ok, 1 warnings, 1 failed\n");
}

TEST(FindingsText, OnlyFailuresFail) {
  EXPECT_TRUE(AnyFailed(Three()));
  EXPECT_FALSE(AnyFailed({Fine("clock", ""), Warning("cores", "", "")}));
}

TEST(FindingsJson, HasTheSame) {
  const auto json = nlohmann::json::parse(FindingsJson(Three()), nullptr, false);
  ASSERT_TRUE(json.is_object());
  ASSERT_EQ(json["checks"].size(), 3u);
  EXPECT_EQ(json["checks"][0]["severity"], "ok");
  EXPECT_EQ(json["checks"][1]["severity"], "warn");
  EXPECT_EQ(json["checks"][2]["severity"], "fail");
  EXPECT_EQ(json["checks"][2]["check"], "listen port");
  EXPECT_EQ(json["checks"][2]["remedy"], "another one");
  EXPECT_EQ(json["ok"], 1);
  EXPECT_EQ(json["warnings"], 1);
  EXPECT_EQ(json["failures"], 1);
  EXPECT_EQ(nlohmann::json::parse(FindingsJson({}), nullptr, false)["checks"].size(), 0u);
  // A path is bytes.
  EXPECT_NE(FindingsJson({Fine("job directory", "/tmp/\xff")}).find("/tmp/"), std::string::npos);
}

}  // namespace
}  // namespace parley
