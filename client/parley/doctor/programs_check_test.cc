#include "client/parley/doctor/programs_check.h"

#include <gtest/gtest.h>

namespace parley {
namespace {

Finding Check(ProgramAnswer answer) {
  answer.name = "parley-shard";
  return CheckPrograms({answer}, "0.1.0")[0];
}

TEST(CheckPrograms, OneVersionOfAllIsOk) {
  EXPECT_EQ(Check({.path = "/bin/parley-shard", .said = "parley-shard 0.1.0"}).severity,
            Severity::kOk);
}

TEST(CheckPrograms, NamesWhatIsMissingOrOfAnotherVersion) {
  Finding finding = Check({});
  EXPECT_EQ(finding.what, "parley-shard");
  EXPECT_EQ(finding.severity, Severity::kFailure);
  EXPECT_NE(finding.remedy.find("deploy/build"), std::string::npos);
  finding = Check({.path = "/bin/parley-shard", .said = "parley-shard 0.0.9"});
  EXPECT_EQ(finding.severity, Severity::kFailure);
  EXPECT_NE(finding.found.find("'parley-shard 0.0.9'; this is parley 0.1.0"), std::string::npos);
}

TEST(CheckPrograms, AMissingLibraryIsToldFromAnotherCrash) {
  const ProgramAnswer no_library = {
      .path = "/bin/parley-shard",
      .error = "ended with exit status 127: error while loading shared libraries: libgrpc.so.29"};
  EXPECT_NE(Check(no_library).remedy.find("deploy/bootstrap"), std::string::npos);
  const ProgramAnswer crash = {.path = "/bin/parley-shard", .error = "was ended by SIGILL"};
  EXPECT_NE(Check(crash).remedy.find("deploy/build again"), std::string::npos);
}

TEST(AskPrograms, OneThatIsNotBesideThisOneHasNoPath) {
  const auto answers = AskPrograms({"parley-of-nobody"});
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].path, "");
}

TEST(CheckLibraries, AnOlderOneThanAtTheBuildFails) {
  EXPECT_EQ(CheckLibraries({{"glibc", "2.36", "2.36"}})[0].severity, Severity::kOk);
  EXPECT_EQ(CheckLibraries({{"glibc", "2.9", "2.36"}})[0].severity, Severity::kOk);
  EXPECT_EQ(CheckLibraries({{"glibc", "2.36", ""}})[0].severity, Severity::kOk);
  const Finding finding =
      CheckLibraries({{"glibc", "2.36", "2.36"}, {"gRPC", "1.51.1", "1.46.3"}})[0];
  EXPECT_EQ(finding.severity, Severity::kFailure);
  EXPECT_NE(finding.found.find("gRPC 1.46.3 (built with 1.51.1), which is newer"),
            std::string::npos)
      << finding.found;
}

TEST(LookAtLibraries, KnowsThoseOfThisProcess) {
  const auto libraries = LookAtLibraries();
  ASSERT_EQ(libraries.size(), 3u);
  for (const LibraryVersion& library : libraries) {
    EXPECT_EQ(library.built, library.loaded) << library.name;
  }
}

}  // namespace
}  // namespace parley
