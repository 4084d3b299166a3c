#include "client/parley/doctor/gpu_check.h"

#include <gtest/gtest.h>

namespace parley {
namespace {

GpuFacts GoodFacts() {
  GpuFacts facts;
  facts.gpus = 8;
  facts.cuda_version = 13010;
  facts.kernel_driver = "580.82.07";
  facts.has_devices = true;
  facts.plugin = "/opt/bin/libparley_cuda.so";
  facts.has_plugin = true;
  facts.shared_memory = uint64_t{1} << 30;
  return facts;
}

const auto kLoads = [] { return absl::OkStatus(); };

// The last one: the first that is not ok, since what it needs is missing for all that would follow.
Finding Fault(const GpuFacts& facts, Device asked = CUDA) {
  const Findings findings = CheckGpus(facts, asked, kLoads);
  for (size_t i = 0; i + 1 < findings.size(); ++i) {
    EXPECT_EQ(findings[i].severity, Severity::kOk) << findings[i].found;
  }
  EXPECT_EQ(findings.back().severity, asked == CUDA ? Severity::kFailure : Severity::kWarning);
  return findings.back();
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(CheckGpus, AMachineWithGpusIsOk) {
  const Findings findings = CheckGpus(GoodFacts(), CUDA, kLoads);
  EXPECT_EQ(findings.size(), 5u);
  for (const Finding& finding : findings) EXPECT_EQ(finding.severity, Severity::kOk);
}

TEST(CheckGpus, AJobOnTheCpuNeedsNone) {
  GpuFacts facts;
  facts.library_error = "libcuda.so.1: cannot open shared object file";
  const Findings findings = CheckGpus(facts, CPU, kLoads);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].severity, Severity::kOk);
}

TEST(CheckGpus, WithoutADriverOneIsToBeInstalledAndAutoIsOnlyWarned) {
  GpuFacts facts;
  facts.library_error = "libcuda.so.1: cannot open shared object file";
  EXPECT_EQ(Fault(facts).what, "GPU driver");
  EXPECT_TRUE(Has(Fault(facts).remedy, "NVIDIA's driver for CUDA 13"));
  EXPECT_TRUE(Has(Fault(facts).remedy, "--set device=CPU"));
  EXPECT_TRUE(Has(Fault(facts, AUTO).found, "AUTO runs on the CPU"));
}

TEST(CheckGpus, TellsWhatIsBehindADriverThatDoesNotStart) {
  GpuFacts facts = GoodFacts();
  facts.start_error = 999;
  EXPECT_TRUE(Has(Fault(facts).found, "error 999"));
  EXPECT_TRUE(Has(Fault(facts).remedy, "nvidia-smi"));
  facts.has_devices = false;
  EXPECT_TRUE(Has(Fault(facts).remedy, "/dev/nvidiactl"));
  facts.kernel_driver = "";
  EXPECT_TRUE(Has(Fault(facts).remedy, "modprobe"));
  facts.closed_devices = {"/dev/nvidia0", "/dev/nvidiactl"};
  EXPECT_TRUE(Has(Fault(facts).remedy, "may not open /dev/nvidia0, /dev/nvidiactl"));
  facts.start_error = 0;
  facts.gpus = 0;
  EXPECT_EQ(Fault(facts).what, "GPUs");
  EXPECT_TRUE(Has(Fault(facts).remedy, "may not open"));
}

TEST(CheckGpus, AnOldDriverFails) {
  GpuFacts facts = GoodFacts();
  facts.cuda_version = 12080;
  EXPECT_EQ(Fault(facts).what, "CUDA version");
  EXPECT_EQ(Fault(facts).found, "the driver is for CUDA 12.8, parley is built with 13.0");
  facts.cuda_version = 0;  // it does not say
  EXPECT_EQ(CheckGpus(facts, CUDA, kLoads).size(), 5u);
}

TEST(CheckGpus, ThePluginMustBeThereAndLoad) {
  GpuFacts facts = GoodFacts();
  facts.has_plugin = false;
  EXPECT_EQ(Fault(facts).what, "CUDA libraries");
  EXPECT_TRUE(Has(Fault(facts).remedy, "deploy/build --cuda"));
  const Findings findings = CheckGpus(
      GoodFacts(), CUDA, [] { return absl::FailedPreconditionError("libnccl.so.2 is missing"); });
  EXPECT_EQ(findings[3].severity, Severity::kFailure);
  EXPECT_TRUE(Has(findings[3].found, "libnccl.so.2"));
  EXPECT_TRUE(Has(findings[3].remedy, "deploy/bootstrap cuda"));
}

TEST(CheckGpus, AContainersShortSharedMemoryIsAWarning) {
  GpuFacts facts = GoodFacts();
  facts.shared_memory = uint64_t{32} << 20;
  const Findings findings = CheckGpus(facts, CUDA, kLoads);
  EXPECT_EQ(findings.back().severity, Severity::kWarning);
  EXPECT_TRUE(Has(findings.back().remedy, "--shm-size"));
}

}  // namespace
}  // namespace parley
